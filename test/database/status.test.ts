/** The overall status of a number: its value for given entries, and how it changes as carriers decide on them. */
import { eq, sql } from 'drizzle-orm';
import { beforeEach, describe, expect, it } from 'vitest';
import type { CarrierStatus, DetailedStatus, Status } from '../../generated/types/models/index.js';
import { brandedPhoneNumbers, carrierStatuses, items } from '../../src/database/schema.js';
import { DETAILED_STATUSES, entryWith, numberWith, write } from '../support/numbers.js';
import { overallStatus } from '../support/reference.js';
import { useService } from '../support/service.js';

const service = useService();
const PHONE = '+14155550123';

const statusNow = async () => {
  const [row] = await service.database.select().from(items).where(eq(items.phoneNumber, PHONE));
  return row?.status;
};

const decide = (detailedStatus: DetailedStatus, carrier?: string) =>
  service.database
    .update(carrierStatuses)
    .set({ detailedStatus })
    .where(carrier ? eq(carrierStatuses.carrier, carrier) : sql`TRUE`);

beforeEach(async () => {
  await service.database.execute(sql`TRUNCATE ${brandedPhoneNumbers} CASCADE`);
});

describe('the status of a number (specification 3.2)', () => {
  const rows: [string, DetailedStatus[], Status][] = [
    [
      'is submitted for review while any opt-in is pending',
      ['approved.optIn', 'rejected.optIn', 'pending.initialOptIn'],
      'submitted for review',
    ],
    [
      'is submitted for review while any opt-out is pending',
      ['approved.optIn', 'pending.optOut'],
      'submitted for review',
    ],
    [
      'is submitted for review while any entry is at its carrier',
      ['approved.optOut', 'submitted.optOut'],
      'submitted for review',
    ],
    [
      'is rejected when a single carrier rejected it',
      ['approved.optIn', 'approved.optIn', 'rejected.optIn'],
      'rejected',
    ],
    ['is rejected when an opt-out was rejected', ['approved.optIn', 'rejected.optOut'], 'rejected'],
    ['is approved when all opt-ins are approved', ['approved.optIn', 'approved.optIn'], 'approved'],
    ['is approved when one opt-in is left beside approved opt-outs', ['approved.optIn', 'approved.optOut'], 'approved'],
    ['is unregistered when all entries are approved opt-outs', ['approved.optOut', 'approved.optOut'], 'unregistered'],
    ['is unregistered without entries', [], 'unregistered'],
  ];
  it.each(rows)('%s', async (_name, detailedStatuses, expected) => {
    const entries = detailedStatuses.map((detailedStatus, i) =>
      entryWith(`Carrier ${i}`, 'brandedCallerId', detailedStatus),
    );
    await write(service.database, [numberWith({ phoneNumber: PHONE, carrierStatuses: entries })]);
    expect(await statusNow()).toBe(expected);
    expect(overallStatus(entries)).toBe(expected);
  });

  it.each(DETAILED_STATUSES)('is the one that the table gives if %s is its only entry', async (detailedStatus) => {
    const entries: CarrierStatus[] = [entryWith('AT&T', 'spamRemediation', detailedStatus)];
    await write(service.database, [numberWith({ phoneNumber: PHONE, carrierStatuses: entries })]);
    expect(await statusNow()).toBe(overallStatus(entries));
  });
});

describe('a number (specification 3.3)', () => {
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

  it.each<[string, DetailedStatus, [DetailedStatus, carrier?: string][], Status]>([
    [
      'is submitted for review until the last decision',
      'pending.initialOptIn',
      [['submitted.optIn'], ['approved.optIn', 'AT&T']],
      'submitted for review',
    ],
    ['becomes approved when all carriers have approved it', 'submitted.optIn', [['approved.optIn']], 'approved'],
    [
      'becomes rejected when one carrier rejects it and none is left to decide',
      'submitted.optIn',
      [
        ['approved.optIn', 'AT&T'],
        ['rejected.optIn', 'Verizon'],
      ],
      'rejected',
    ],
    [
      'goes from approved back to submitted for review when it is deregistered',
      'approved.optIn',
      [
        ['pending.optOut', 'AT&T'],
        ['submitted.optOut', 'AT&T'],
      ],
      'submitted for review',
    ],
    [
      'goes from rejected back to submitted for review when it is deregistered',
      'rejected.optIn',
      [['pending.optOut', 'AT&T']],
      'submitted for review',
    ],
    [
      'ends approved when only some carriers were opted out of',
      'approved.optIn',
      [
        ['submitted.optOut', 'AT&T'],
        ['approved.optOut', 'AT&T'],
      ],
      'approved',
    ],
    [
      'ends rejected when a carrier rejects the opt-out',
      'approved.optIn',
      [['submitted.optOut'], ['approved.optOut', 'AT&T'], ['rejected.optOut', 'Verizon']],
      'rejected',
    ],
    [
      'ends unregistered when it is opted out of every carrier and feature',
      'approved.optIn',
      [['submitted.optOut'], ['approved.optOut']],
      'unregistered',
    ],
  ])('%s', async (_what, submitted, decisions, expected) => {
    await submit(submitted);
    for (const [detailedStatus, carrier] of decisions) await decide(detailedStatus, carrier);
    expect(await statusNow()).toBe(expected);
  });
});
