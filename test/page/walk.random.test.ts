import { eq, sql } from 'drizzle-orm';
import fc from 'fast-check';
import request from 'supertest';
import { expect, inject, it } from 'vitest';
import type { BrandedPhoneNumber } from '../../generated/types/models/index.js';
import { brandedPhoneNumbers, carrierStatuses } from '../../src/database/schema.js';
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

it('a walk returns each number that exists throughout it exactly once, during random writes', async () => {
  await fc.assert(
    fc.asyncProperty(
      numbers,
      fc.array(fc.array(anyChange, { maxLength: 4 }), { maxLength: 40 }),
      fc.constantFrom(1, 2, 5),
      async (list, changes, size) => {
        const { database } = service;
        await database.execute(sql`DELETE FROM ${brandedPhoneNumbers}`);
        await write(database, list);
        const steady = new Set(list.map(({ phoneNumber }) => phoneNumber));
        const present = new Set(steady);
        const seen: BrandedPhoneNumber[] = [];
        let search: string | null = `?size=${size}`;
        for (let page = 0; search !== null; page++) {
          const { items, nextCursor } = pageOf(await request(service.app).get(`/v1/brandedPhoneNumbers${search}`));
          seen.push(...items);
          search = nextCursor === null ? null : `?size=${size}&nextCursor=${nextCursor}`;
          for (const change of changes[page] ?? []) {
            if (change.kind === 'insert') {
              if (present.has(change.phoneNumber)) continue;
              await write(database, [numberWith({ phoneNumber: change.phoneNumber })]);
              present.add(change.phoneNumber);
              continue;
            }
            const phoneNumber = list[change.index % list.length]?.phoneNumber ?? '';
            if (change.kind === 'delete') {
              await database.delete(brandedPhoneNumbers).where(eq(brandedPhoneNumbers.phoneNumber, phoneNumber));
              steady.delete(phoneNumber);
            } else {
              const detailedStatus = DETAILED_STATUSES[change.index % DETAILED_STATUSES.length] ?? 'approved.optIn';
              await database
                .update(carrierStatuses)
                .set({ detailedStatus })
                .where(eq(carrierStatuses.phoneNumber, phoneNumber));
            }
          }
        }
        const phoneNumbers = seen.map(({ phoneNumber }) => phoneNumber);
        expect(phoneNumbers).toEqual([...new Set(phoneNumbers)].sort(byBytes));
        expect(phoneNumbers).toEqual(expect.arrayContaining([...steady]));
      },
    ),
    { numRuns: 20 * inject('tries') },
  );
});

it('a walk by status returns the numbers that keep the status, while other numbers lose it', async () => {
  const { database } = service;
  await database.execute(sql`DELETE FROM ${brandedPhoneNumbers}`);
  const list = Array.from({ length: 40 }, (_, i) => numberWith({ phoneNumber: `+1${100 + i}` }));
  await write(database, list);
  const seen: string[] = [];
  for (let search: string | null = '?size=3&status=unregistered'; search !== null; ) {
    const { items, nextCursor } = pageOf(await request(service.app).get(`/v1/brandedPhoneNumbers${search}`));
    seen.push(...items.map(({ phoneNumber }) => phoneNumber));
    search = nextCursor === null ? null : `?size=3&status=unregistered&nextCursor=${nextCursor}`;
    const odd = list[(seen.length + 5) % 40]?.phoneNumber ?? '';
    if (Number(odd.slice(1)) % 2) {
      const entry = {
        phoneNumber: odd,
        carrier: 'AT&T',
        feature: 'brandedCallerId',
        detailedStatus: 'pending.optIn',
      } as const;
      await database.insert(carrierStatuses).values(entry).onConflictDoNothing();
    }
  }
  const even = list
    .map(({ phoneNumber }) => phoneNumber)
    .filter((phoneNumber) => Number(phoneNumber.slice(1)) % 2 === 0);
  expect(seen).toEqual(expect.arrayContaining(even));
  expect(seen).toEqual([...new Set(seen)].sort());
});
