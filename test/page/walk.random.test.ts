import { eq, sql } from 'drizzle-orm';
import fc from 'fast-check';
import request from 'supertest';
import { expect, inject, it } from 'vitest';
import type { BrandedPhoneNumber } from '../../generated/types/models/index.js';
import { brandedPhoneNumbers } from '../../src/database/schema.js';
import { DETAILED_STATUSES, numbers, numberWith, write } from '../support/numbers.js';
import { byBytes } from '../support/reference.js';
import { pageOf } from '../support/response.js';
import { useService } from '../support/service.js';

const service = useService();

/** A write between two pages; `index` selects a number of the list. */
type Change = { kind: 'insert'; phoneNumber: string } | { kind: 'delete' | 'update'; index: number };

const anyChange: fc.Arbitrary<Change> = fc.oneof(
  fc.record({ kind: fc.constant('insert' as const), phoneNumber: fc.stringMatching(/^\+[1-9][0-9]{1,12}$/) }),
  fc.record({ kind: fc.constantFrom('delete' as const, 'update' as const), index: fc.nat({ max: 100 }) }),
);

it('a walk returns each number that matches throughout it exactly once, during random writes', async () => {
  await fc.assert(
    fc.asyncProperty(
      numbers,
      fc.array(fc.array(anyChange, { maxLength: 4 }), { maxLength: 40 }),
      fc.constantFrom('size=1', 'size=2', 'size=5', 'size=1&status=unregistered', 'size=5&status=unregistered'),
      async (list, changes, query) => {
        const { database } = service;
        await database.execute(sql`DELETE FROM ${brandedPhoneNumbers}`);
        await write(database, list);
        const isByStatus = query.includes('status');
        const matching = list.filter(({ status }) => !isByStatus || status === 'unregistered');
        const steady = new Set(matching.map(({ phoneNumber }) => phoneNumber));
        const present = new Set(list.map(({ phoneNumber }) => phoneNumber));
        const seen: BrandedPhoneNumber[] = [];
        let search: string | null = query;
        for (let page = 0; search !== null; page++) {
          const { items, nextCursor } = pageOf(await request(service.url).get(`/v1/brandedPhoneNumbers?${search}`));
          seen.push(...items);
          search = nextCursor === null ? null : `${query}&nextCursor=${nextCursor}`;
          for (const change of changes[page] ?? []) {
            if (change.kind === 'insert') {
              if (present.has(change.phoneNumber)) continue;
              await write(database, [numberWith({ phoneNumber: change.phoneNumber })]);
              present.add(change.phoneNumber);
              continue;
            }
            const phoneNumber = list[change.index % list.length]?.phoneNumber ?? '';
            if (change.kind === 'delete' || isByStatus) steady.delete(phoneNumber);
            if (change.kind === 'delete') {
              await database.delete(brandedPhoneNumbers).where(eq(brandedPhoneNumbers.phoneNumber, phoneNumber));
            } else {
              const detailedStatus = DETAILED_STATUSES[change.index % DETAILED_STATUSES.length] ?? 'approved.optIn';
              await setEntry(phoneNumber, detailedStatus);
            }
          }
        }
        const phoneNumbers = seen.map(({ phoneNumber }) => phoneNumber);
        expect(phoneNumbers).toEqual([...new Set(phoneNumbers)].sort(byBytes));
        expect(phoneNumbers).toEqual(expect.arrayContaining([...steady]));
      },
    ),
    { numRuns: Math.ceil(30 * inject('tries')) },
  );
});

/** Adds or changes an entry of a number, unless the number was deleted. */
const setEntry = (phoneNumber: string, detailedStatus: string) =>
  service.database.execute(sql`
    INSERT INTO carrier_statuses (phone_number, carrier, feature, detailed_status)
    SELECT phone_number, 'AT&T', 'brandedCallerId', ${detailedStatus}::detailed_status
    FROM branded_phone_numbers WHERE phone_number = ${phoneNumber}
    ON CONFLICT (phone_number, carrier, feature) DO UPDATE SET detailed_status = EXCLUDED.detailed_status`);
