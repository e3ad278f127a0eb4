import { eq, sql } from 'drizzle-orm';
import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import { type CarrierStatus, type DetailedStatus, Status } from '../generated/types/models/index.js';
import { brandedPhoneNumbers, businessProfiles, carrierStatuses, facets, listings } from '../src/schema.js';
import { DETAILED_STATUSES, entryWith, numbers, numberWith, PROFILES, write } from './numbers.js';
import { overallStatus } from './reference.js';
import { useService } from './service.js';

const service = useService();
const PHONE = '+14155550123';

const statusNow = async (phoneNumber = PHONE) => {
  const [row] = await service.database
    .select()
    .from(brandedPhoneNumbers)
    .where(eq(brandedPhoneNumbers.phoneNumber, phoneNumber));
  return row?.status;
};

const decide = (detailedStatus: DetailedStatus, carrier?: string) =>
  service.database
    .update(carrierStatuses)
    .set({ detailedStatus })
    .where(carrier ? eq(carrierStatuses.carrier, carrier) : sql`TRUE`);

/** What is listed must be what a join of the true tables says. */
async function expectListingToAgree(): Promise<void> {
  const differing = await service.database.execute(sql`
    WITH listed AS (
      SELECT l.phone_number, f.carrier, f.feature, f.detailed_status, f.status, l.business_profile_id, l.reporting_group, l.internal_name
      FROM ${listings} l JOIN ${facets} f ON f.id = l.facet_id
    ), truth AS (
      SELECT n.phone_number, e.carrier, e.feature, e.detailed_status, n.status, n.business_profile_id, n.reporting_group, n.internal_name
      FROM ${brandedPhoneNumbers} n
      CROSS JOIN LATERAL (
        SELECT e.carrier, e.feature, e.detailed_status FROM ${carrierStatuses} e WHERE e.phone_number = n.phone_number
        UNION ALL SELECT NULL, NULL, NULL
      ) e
    )
    (TABLE listed EXCEPT ALL TABLE truth) UNION ALL (TABLE truth EXCEPT ALL TABLE listed)`);
  expect([...differing]).toEqual([]);
  const differingIds = await service.database.execute(sql`
    SELECT phone_number FROM ${brandedPhoneNumbers} n
    WHERE (SELECT array_agg(id ORDER BY id) FROM unnest(facet_ids) id)
      IS DISTINCT FROM (SELECT array_agg(facet_id ORDER BY facet_id) FROM ${listings} l WHERE l.phone_number = n.phone_number)`);
  expect([...differingIds]).toEqual([]);
}

beforeEach(async () => {
  await service.database.execute(sql`TRUNCATE ${brandedPhoneNumbers} CASCADE`);
});

describe('the overall status (specification 3.2)', () => {
  const rows: [string, DetailedStatus[], Status][] = [
    [
      'any pending makes it submitted for review',
      ['approved.optIn', 'rejected.optIn', 'pending.initialOptIn'],
      'submitted for review',
    ],
    ['any pending opt-out makes it submitted for review', ['approved.optIn', 'pending.optOut'], 'submitted for review'],
    ['any submitted makes it submitted for review', ['approved.optOut', 'submitted.optOut'], 'submitted for review'],
    ['a single rejected makes it rejected', ['approved.optIn', 'approved.optIn', 'rejected.optIn'], 'rejected'],
    ['a rejected opt-out makes it rejected', ['approved.optIn', 'rejected.optOut'], 'rejected'],
    ['approved opt-ins make it approved', ['approved.optIn', 'approved.optIn'], 'approved'],
    ['one opt-in left makes it approved', ['approved.optIn', 'approved.optOut'], 'approved'],
    ['only approved opt-outs make it unregistered', ['approved.optOut', 'approved.optOut'], 'unregistered'],
    ['no entries make it unregistered', [], 'unregistered'],
  ];
  it.each(rows)('%s', async (_name, detailedStatuses, expected) => {
    const entries = detailedStatuses.map((detailedStatus, i) =>
      entryWith(`Carrier ${i}`, 'brandedCallerId', detailedStatus),
    );
    await write(service.database, [numberWith({ phoneNumber: PHONE, carrierStatuses: entries })]);
    expect(await statusNow()).toBe(expected);
    expect(overallStatus(entries)).toBe(expected);
  });

  it.each(DETAILED_STATUSES)('is right for %s alone', async (detailedStatus) => {
    const entries: CarrierStatus[] = [entryWith('AT&T', 'spamRemediation', detailedStatus)];
    await write(service.database, [numberWith({ phoneNumber: PHONE, carrierStatuses: entries })]);
    expect(await statusNow()).toBe(overallStatus(entries));
  });
});

describe('the flow of a number (specification 3.3)', () => {
  const submit = (detailedStatus: DetailedStatus) =>
    write(service.database, [
      numberWith({
        phoneNumber: PHONE,
        carrierStatuses: [
          entryWith('AT&T', 'brandedCallerId', detailedStatus),
          entryWith('Verizon', 'brandedCallerId', detailedStatus),
        ],
      }),
    ]);

  it('enters submitted for review on submission and stays there while a decision is pending', async () => {
    await submit('pending.initialOptIn');
    expect(await statusNow()).toBe('submitted for review');
    await decide('submitted.optIn');
    await decide('approved.optIn', 'AT&T');
    expect(await statusNow()).toBe('submitted for review');
  });

  it('becomes approved when all are approved', async () => {
    await submit('submitted.optIn');
    await decide('approved.optIn');
    expect(await statusNow()).toBe('approved');
  });

  it('becomes rejected when one is rejected and none is pending', async () => {
    await submit('submitted.optIn');
    await decide('approved.optIn', 'AT&T');
    await decide('rejected.optIn', 'Verizon');
    expect(await statusNow()).toBe('rejected');
  });

  it.each(['approved.optIn', 'rejected.optIn'] as const)(
    'goes from %s back to review when it is deregistered',
    async (from) => {
      await submit(from);
      await decide('pending.optOut', 'AT&T');
      expect(await statusNow()).toBe('submitted for review');
      await decide('submitted.optOut', 'AT&T');
      expect(await statusNow()).toBe('submitted for review');
    },
  );

  it('ends approved when only some are opted out', async () => {
    await submit('approved.optIn');
    await decide('submitted.optOut', 'AT&T');
    await decide('approved.optOut', 'AT&T');
    expect(await statusNow()).toBe('approved');
  });

  it('ends rejected when an opt-out is rejected', async () => {
    await submit('approved.optIn');
    await decide('submitted.optOut');
    await decide('approved.optOut', 'AT&T');
    await decide('rejected.optOut', 'Verizon');
    expect(await statusNow()).toBe('rejected');
  });

  it('ends unregistered when every carrier and feature is opted out', async () => {
    await submit('approved.optIn');
    await decide('submitted.optOut');
    expect(await statusNow()).toBe('submitted for review');
    await decide('approved.optOut');
    expect(await statusNow()).toBe('unregistered');
  });
});

describe('whoever writes', () => {
  const approved = (phoneNumber: string) =>
    numberWith({ phoneNumber, carrierStatuses: [entryWith('AT&T', 'brandedCallerId', 'approved.optIn')] });

  it('the status cannot be set by hand', async () => {
    await write(service.database, [approved(PHONE)]);
    await service.database.update(brandedPhoneNumbers).set({ status: 'rejected', facetIds: [], itemTail: '' });
    expect(await statusNow()).toBe('approved');
    await service.database
      .insert(brandedPhoneNumbers)
      .values({ phoneNumber: '+19', businessProfileId: PROFILES[0]?.id ?? '', status: 'approved' });
    expect(await statusNow('+19')).toBe('unregistered');
    await expectListingToAgree();
  });

  it('what is listed cannot be written by hand', async () => {
    await write(service.database, [approved(PHONE)]);
    for (const statement of [
      sql`DELETE FROM ${listings}`,
      sql`UPDATE ${listings} SET reporting_group = 'x'`,
      sql`TRUNCATE ${listings}`,
      sql`DELETE FROM ${facets}`,
    ]) {
      await expect(service.database.execute(statement)).rejects.toMatchObject({
        cause: { message: expect.stringContaining('derived; write carrier_statuses') },
      });
    }
  });

  it('a thousand numbers change in one statement', async () => {
    const list = Array.from({ length: 1000 }, (_, i) => approved(`+1415${String(i).padStart(7, '0')}`));
    await write(service.database, list);
    await decide('rejected.optIn');
    const [row] = await service.database.execute(
      sql`SELECT count(*)::int FROM ${brandedPhoneNumbers} WHERE status = 'rejected'`,
    );
    expect(row?.count).toBe(1000);
    await expectListingToAgree();
  });

  it('a number keeps its entries when it is renumbered', async () => {
    await write(service.database, [approved(PHONE)]);
    await service.database.update(brandedPhoneNumbers).set({ phoneNumber: '+19' });
    expect(await statusNow('+19')).toBe('approved');
    await expectListingToAgree();
  });

  it('an entry that moves to another number changes both', async () => {
    await write(service.database, [approved(PHONE), numberWith({ phoneNumber: '+19' })]);
    await service.database.update(carrierStatuses).set({ phoneNumber: '+19' });
    expect([await statusNow(), await statusNow('+19')]).toEqual(['unregistered', 'approved']);
    await expectListingToAgree();
  });

  it('two writers of one number at once both count', async () => {
    await write(service.database, [
      numberWith({
        phoneNumber: PHONE,
        carrierStatuses: [
          entryWith('AT&T', 'brandedCallerId', 'pending.optIn'),
          entryWith('Verizon', 'brandedCallerId', 'pending.optIn'),
        ],
      }),
    ]);
    for (let round = 0; round < 20; round++) {
      await decide('pending.optIn');
      await Promise.all([decide('approved.optIn', 'AT&T'), decide('approved.optIn', 'Verizon')]);
      expect(await statusNow()).toBe('approved');
    }
    await expectListingToAgree();
  });

  it('truncating the entries unregisters every number', async () => {
    await write(service.database, [approved(PHONE)]);
    await service.database.execute(sql`TRUNCATE ${carrierStatuses}`);
    expect(await statusNow()).toBe('unregistered');
    await expectListingToAgree();
  });

  it('any sequence of writes leaves every status and the listing right', async () => {
    const phone = fc.nat({ max: 200 });
    const step = fc.oneof(
      fc.tuple(fc.constant('decide' as const), phone, fc.constantFrom(...DETAILED_STATUSES)),
      fc.tuple(fc.constant('delete entries' as const), phone, fc.constant('approved.optIn' as const)),
      fc.tuple(fc.constant('delete' as const), phone, fc.constant('approved.optIn' as const)),
      fc.tuple(fc.constant('regroup' as const), phone, fc.constant('approved.optIn' as const)),
      fc.tuple(fc.constant('upsert' as const), phone, fc.constantFrom(...DETAILED_STATUSES)),
    );
    await fc.assert(
      fc.asyncProperty(numbers, fc.array(step, { maxLength: 12 }), async (list, steps) => {
        const { database } = service;
        await database.execute(sql`TRUNCATE ${brandedPhoneNumbers} CASCADE`);
        await write(database, list);
        for (const [what, index, detailedStatus] of steps) {
          const phoneNumber = list[index % list.length]?.phoneNumber ?? '';
          const ofNumber = eq(carrierStatuses.phoneNumber, phoneNumber);
          if (what === 'decide') await database.update(carrierStatuses).set({ detailedStatus }).where(ofNumber);
          if (what === 'delete entries') await database.delete(carrierStatuses).where(ofNumber);
          if (what === 'delete')
            await database.delete(brandedPhoneNumbers).where(eq(brandedPhoneNumbers.phoneNumber, phoneNumber));
          if (what === 'regroup') {
            const change = { reportingGroup: null, internalName: 'Renamed', businessProfileId: PROFILES[1]?.id ?? '' };
            await database
              .update(brandedPhoneNumbers)
              .set(change)
              .where(eq(brandedPhoneNumbers.phoneNumber, phoneNumber));
          }
          if (what === 'upsert') {
            await database.execute(sql`
              INSERT INTO ${carrierStatuses} (phone_number, carrier, feature, detailed_status)
              SELECT phone_number, 'AT&T', 'spamRemediation', ${detailedStatus} FROM ${brandedPhoneNumbers} WHERE phone_number >= ${phoneNumber}
              ON CONFLICT (phone_number, carrier, feature) DO UPDATE SET detailed_status = excluded.detailed_status`);
          }
        }
        const rows = await database.select().from(brandedPhoneNumbers);
        for (const row of rows) {
          const entries = await database
            .select()
            .from(carrierStatuses)
            .where(eq(carrierStatuses.phoneNumber, row.phoneNumber));
          expect(row.status).toBe(overallStatus(entries));
          expect(JSON.parse(`{"id":0${row.itemTail}`).carrierStatuses).toHaveLength(entries.length);
        }
        await expectListingToAgree();
      }),
      { numRuns: 25 },
    );
  });
});

describe('the schema refuses', () => {
  const profile = PROFILES[0]?.id ?? '';
  const number = (column: string, value: string) =>
    sql.raw(
      `INSERT INTO branded_phone_numbers (phone_number, business_profile_id, ${column}) VALUES ('+1415', '${profile}', ${value})`,
    );
  const rows: [string, ReturnType<typeof sql.raw>][] = [
    [
      'a phone number that is not E.164',
      sql.raw(`INSERT INTO branded_phone_numbers (phone_number, business_profile_id) VALUES ('+0123', '${profile}')`),
    ],
    ['a short branding name of 16 characters', number('branding_name_short', `repeat('x', 16)`)],
    ['a long branding name of 33 characters', number('branding_name_long', `repeat('x', 33)`)],
    ['an empty name', number('internal_name', `''`)],
    ['a name of 256 characters', number('reporting_group', `repeat('x', 256)`)],
    ['a control character', number('reporting_group', `E'a\\nb'`)],
    ['a control character of Latin-1', number('reporting_group', `E'a\\u0085b'`)],
    ['an infinite time', number('created_at', `'infinity'`)],
    [
      'an unknown business profile',
      sql.raw(
        `INSERT INTO branded_phone_numbers (phone_number, business_profile_id) VALUES ('+1415', gen_random_uuid())`,
      ),
    ],
    [
      'an unknown detailed status',
      sql.raw(
        `INSERT INTO carrier_statuses (phone_number, carrier, feature, detailed_status) VALUES ('+1', 'A', 'brandedCallerId', 'lost')`,
      ),
    ],
    [
      'an unknown feature',
      sql.raw(
        `INSERT INTO carrier_statuses (phone_number, carrier, feature, detailed_status) VALUES ('+1', 'A', 'fax', 'approved.optIn')`,
      ),
    ],
    [
      'an entry without a number',
      sql.raw(
        `INSERT INTO carrier_statuses (phone_number, carrier, feature, detailed_status) VALUES ('+199', 'A', 'brandedCallerId', 'approved.optIn')`,
      ),
    ],
  ];
  it.each(rows)('%s', async (_name, statement) => {
    await service.database.insert(businessProfiles).values(PROFILES).onConflictDoNothing();
    await expect(service.database.execute(statement)).rejects.toThrow();
  });

  it('a second entry for the same carrier and feature', async () => {
    await write(service.database, [
      numberWith({ phoneNumber: PHONE, carrierStatuses: [entryWith('AT&T', 'brandedCallerId', 'approved.optIn')] }),
    ]);
    const second = { phoneNumber: PHONE, ...entryWith('AT&T', 'brandedCallerId', 'rejected.optIn') };
    await expect(service.database.insert(carrierStatuses).values(second)).rejects.toThrow();
  });

  it('nothing that the contract allows', async () => {
    const widest = 'ü'.repeat(255);
    const list = [
      numberWith({
        phoneNumber: '+12',
        internalName: widest,
        reportingGroup: widest,
        brandingNameShort: 'x'.repeat(15),
        brandingNameLong: '😀'.repeat(32),
        carrierStatuses: [entryWith(widest, 'brandedCallerId', 'approved.optIn')],
      }),
    ];
    await write(service.database, list);
    await expectListingToAgree();
  });

  it('only the values that the contract lists', async () => {
    const listed = sql`string_agg(value::text, ',' ORDER BY value)`;
    const [row] = await service.database.execute(sql`
      SELECT
        (SELECT ${listed} FROM unnest(enum_range(NULL::status)) AS value) AS statuses,
        (SELECT ${listed} FROM unnest(enum_range(NULL::detailed_status)) AS value) AS detailed`);
    expect(row).toEqual({ statuses: Object.values(Status).join(), detailed: DETAILED_STATUSES.join() });
  });
});
