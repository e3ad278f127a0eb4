/** An import stores every member unchanged, except for times, which it rounds. */
import fc from 'fast-check';
import { describe, expect, inject, test } from 'vitest';
import type { Progress } from '../../../src/operator/numbers/staging.js';
import { inUtc } from '../../../src/operator/numbers/time.js';
import { expectDerivedToAgree } from '../../support/derived.js';
import { database, entry, ID, manyNumbers, number, run, stored, storedNumber, useDatabase } from './importing.js';

useDatabase();

describe('an import', () => {
  test('stores every member', async () => {
    const times = { createdAt: '2026-02-03T16:49:02.748Z', updatedAt: '2026-03-03T16:49:02.748Z' };
    const carrierStatuses = [
      entry({ carrier: 'Verizon', detailedStatus: 'rejected.optIn', createdAt: '2026-02-04T00:00:00.000Z' }),
      entry({ feature: 'spamRemediation', createdAt: '2026-02-03T16:49:03.043Z' }),
    ];
    expect(await run([number({ id: ID, reportingGroup: 'Control', carrierStatuses, ...times })])).toEqual({
      numbers: 1,
      carrierStatuses: 2,
    });
    expect(await storedNumber()).toEqual({
      phone_number: '+14155550123',
      id: ID,
      business_name: 'Circle Bank',
      profile_status: 'approved',
      internal_name: 'Main Line',
      branding_name_short: 'Circle Bank',
      branding_name_long: 'Circle Bank Financial',
      reporting_group: 'Control',
      status: 'rejected',
      carrier_statuses: carrierStatuses.toReversed(),
      created_at: times.createdAt,
      updated_at: times.updatedAt,
    });
  });

  test('generates ids and times that are omitted', async () => {
    await run([number()]);
    const { id, created_at, updated_at, carrier_statuses } = await storedNumber();
    expect(id).toMatch(/^[0-9a-f-]{36}$/);
    expect(Date.now() - Date.parse(created_at)).toBeLessThan(60_000);
    expect([updated_at, carrier_statuses[0].createdAt]).toEqual([created_at, created_at]);
  });

  test('derives the status, and ignores a given one', async () => {
    const given = ['approved', 'nonsense', null, 7, { a: { a: 1 } }];
    const carrierStatuses = [entry({ detailedStatus: 'pending.optIn' })];
    await run(given.map((status, i) => number({ phoneNumber: `+1${i}`, status, carrierStatuses })));
    expect((await stored()).map(({ status }) => status)).toEqual(given.map(() => 'submitted for review'));
  });

  test('accepts CRLF, byte order marks of joined files, blank lines and a missing last line end', async () => {
    const lines = manyNumbers(3).map((item) => `\ufeff${JSON.stringify(item)}`);
    expect(await run(lines.join('\r\n \t\r\n\n'), {}, 1)).toMatchObject({ numbers: 3 });
    expect(await stored()).toHaveLength(3);
  });

  test('stores any name unchanged in every member', async () => {
    const names = ['back\\slash', '\\N', '\\.', '"quoted"', '{a,b}', 'NULL', "O'Neil; DROP", '🏦 Bänk', ' '];
    const items = names.map((name, i) =>
      number({
        phoneNumber: `+1${i}`,
        businessProfile: { id: `00000000-0000-4000-8000-00000000000${i}`, businessName: name, status: name },
        ...{ internalName: name, brandingNameShort: name, brandingNameLong: name, reportingGroup: name },
        carrierStatuses: [entry({ carrier: name })],
      }),
    );
    await run(items);
    const columns = ['internal_name', 'branding_name_short', 'branding_name_long', 'reporting_group'];
    const all = (await stored()).map((row) => [
      ...['business_name', 'profile_status', ...columns].map((column) => row[column]),
      row.carrier_statuses[0].carrier,
    ]);
    expect(all).toEqual(names.map((name) => Array(7).fill(name)));
  });

  test('stores times in UTC, rounded to milliseconds', async () => {
    const times = [
      ['2026-02-03T16:49:02Z', '2026-02-03T16:49:02.000Z'],
      ['2026-02-03t16:49:02.7489999z', '2026-02-03T16:49:02.749Z'],
      ['0000-12-31T23:59:59.9999Z', '0001-01-01T00:00:00.000Z'],
      ['2026-02-03T16:49:02+23:59', '2026-02-02T16:50:02.000Z'],
      ['2024-02-29T23:59:59.999Z', '2024-02-29T23:59:59.999Z'],
      ['0001-01-01T00:00:00Z', '0001-01-01T00:00:00.000Z'],
      ['9999-12-31T23:59:59.9994Z', '9999-12-31T23:59:59.999Z'],
    ];
    const items = times.map(([time], i) =>
      number({
        phoneNumber: `+1${i}`,
        createdAt: time,
        updatedAt: time,
        carrierStatuses: [entry({ createdAt: time })],
      }),
    );
    await run(items);
    const all = (await stored()).map((row) => [row.created_at, row.updated_at, row.carrier_statuses[0].createdAt]);
    expect(all).toEqual(times.map(([, time]) => Array(3).fill(time)));
  });

  test('rounds times to milliseconds as PostgreSQL does', async () => {
    const day = fc.date({ min: new Date('0001-01-02'), max: new Date('9999-12-30'), noInvalidDate: true });
    const fraction = fc.oneof(
      fc.integer({ min: 0, max: 999_999_999 }).map((digits) => String(digits).padStart(9, '0')),
      fc.integer({ min: 0, max: 9999 }).map((digits) => `${String(digits).padStart(4, '0').slice(0, 3)}5`),
      fc.constantFrom('4995', '9995', '9994999', '9994995', '9994994', '0004995', '0'),
    );
    const time = fc
      .tuple(day, fraction, fc.constantFrom('Z', '+05:30', '-15:59'))
      .map(([date, digits, offset]) => `${date.toISOString().slice(0, 19)}.${digits}${offset}`);
    const given = fc.sample(time, 2000);
    const rows = await database.$client<{ given: string; rounded: string }[]>`
      SELECT given, rfc3339(given::timestamptz(3)) AS rounded FROM unnest(${given}::text[]) AS given`;
    expect(rows.filter(({ given: text, rounded }) => inUtc(text) !== rounded)).toEqual([]);
  });

  test('stores many different numbers and derives their items', async () => {
    const count = 10_000 * inject('tries');
    const items = manyNumbers(count);
    const carrierStatuses = items.reduce((sum, item) => sum + item.carrierStatuses.length, 0);
    expect(await run(items, {}, 65_536)).toEqual({ numbers: count, carrierStatuses });
    const rows = await stored();
    const byPhoneNumber = new Map(items.map((item) => [item.phoneNumber, item]));
    for (const row of rows) {
      const item = byPhoneNumber.get(row.phone_number);
      expect(row).toMatchObject({ internal_name: item?.internalName, reporting_group: item?.reportingGroup });
      expect(new Set(row.carrier_statuses)).toEqual(new Set(item?.carrierStatuses));
    }
    expect(rows).toHaveLength(count);
    await expectDerivedToAgree(database.$client);
  });

  test('writes numbers with a thousand entries, at most a few in one transaction', async () => {
    const items = Array.from({ length: 12 }, (_, i) =>
      number({
        phoneNumber: `+1${i}`,
        carrierStatuses: Array.from({ length: 1000 }, (_, j) => entry({ carrier: `Carrier ${j}` })),
      }),
    );
    const written = async () => {
      const rows = await database.$client`SELECT count(*)::int FROM carrier_statuses GROUP BY xmin`;
      return Math.max(...rows.map(({ count }) => count));
    };
    expect(await run(items, {}, 65_536)).toEqual({ numbers: 12, carrierStatuses: 12_000 });
    expect(await written()).toBeLessThan(6000);
    await expectDerivedToAgree(database.$client);
  });

  test('reports progress while it writes', async () => {
    const progress: Progress[] = [];
    await run(manyNumbers(1000), { onProgress: (now: Progress) => progress.push(now) });
    expect(progress[0]).toEqual({ written: 0, toWrite: 1000 });
    expect(progress.at(-1)).toEqual({ written: 1000, toWrite: 1000 });
    const written = progress.map((now) => now.written);
    expect(written).toEqual(written.toSorted((a, b) => a - b));
  });

  test('stores "" as null', async () => {
    const empty = { internalName: '', brandingNameShort: '', brandingNameLong: '', reportingGroup: '' };
    await run([number(empty)]);
    const { internal_name, branding_name_short, branding_name_long, reporting_group } = await storedNumber();
    expect([internal_name, branding_name_short, branding_name_long, reporting_group]).toEqual(Array(4).fill(null));
  });

  test('accepts a given status that is nested 200,000 levels deep', async () => {
    const line = JSON.stringify(number({ internalName: '\u00e9' })).replace('é', '\\u00e9');
    const status = `${'['.repeat(200_000)}${']'.repeat(200_000)}`;
    expect(await run(line.replace('{', `{"status":${status},`), {}, 65_536)).toMatchObject({ numbers: 1 });
  });
});
