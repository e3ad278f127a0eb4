import { sql } from 'drizzle-orm';
import fc from 'fast-check';
import { expect, inject, it } from 'vitest';
import type { BrandedPhoneNumber } from '../../generated/types/models/index.js';
import { brandedPhoneNumbers } from '../../src/database/schema.js';
import { filterOf } from '../../src/page/filter.js';
import { preparePages } from '../../src/page/page.js';
import { CARRIERS, FEATURES, GROUPS, NAMES, numbers, numbersFrom, PROFILES, write } from '../support/numbers.js';
import { queryOver } from '../support/queries.js';
import { randomPart } from '../support/randomPart.js';
import { find, type Query, searchOf } from '../support/reference.js';
import { freshSeed } from '../support/seed.js';
import { useService } from '../support/service.js';
import { walk } from '../support/walk.js';

const service = useService();

const itemsOf = async (query: Query, size: number) =>
  (await walk(service.url, `${searchOf(query)}&size=${size}`)).flat();

/** Reads all pages without HTTP, in small batches of candidates; returns the phone numbers. */
async function walkInSmallBatches(query: Query, size: number): Promise<string[]> {
  const readPage = preparePages({ costPerItem: 1, growth: 2 });
  const filter = filterOf(query);
  const found: string[] = [];
  for (let after = ''; ; ) {
    const page = await readPage(service.database.$client, { filter, visibleProfiles: null, after, size });
    expect(page.count).toBeLessThanOrEqual(size);
    found.push(
      ...JSON.parse(`[${Buffer.concat(page.items)}]`).map(({ phoneNumber }: BrandedPhoneNumber) => phoneNumber),
    );
    if (!page.hasNext || page.last === null) return found;
    after = page.last;
  }
}

it('a walk returns the numbers that the reference finds, for random filters and data', async () => {
  const data = numbers.chain((list) =>
    fc.record({
      list: fc.constant(list),
      queries: fc.array(fc.tuple(queryOver(list), fc.constantFrom(1, 3, 10, 100)), { minLength: 10, maxLength: 10 }),
    }),
  );
  await fc.assert(
    fc.asyncProperty(data, async ({ list, queries }) => {
      await service.database.execute(sql`DELETE FROM ${brandedPhoneNumbers}`);
      await write(service.database, list);
      for (const [query, size] of queries) {
        const expected = find(list, query);
        expect(await itemsOf(query, size)).toEqual(expected);
        expect(await walkInSmallBatches(query, size)).toEqual(expected.map(({ phoneNumber }) => phoneNumber));
      }
    }),
    { numRuns: Math.ceil(8 * inject('tries')), endOnFailure: false },
  );
}, 300_000);

it('a walk returns the numbers that the reference finds, for each pair of filters', async () => {
  const [list] = fc.sample(numbersFrom(80), { numRuns: 1, seed: freshSeed() }) as [BrandedPhoneNumber[]];
  await service.database.execute(sql`DELETE FROM ${brandedPhoneNumbers}`);
  await write(service.database, list);
  const values: Query[] = [
    { phoneNumber: list[0]?.phoneNumber ?? '' },
    { businessProfileId: PROFILES[0]?.id ?? '' },
    { reportingGroup: ['Control'] },
    { reportingGroup: GROUPS.slice(0, 3) },
    { internalName: ['Main Line'] },
    { internalName: NAMES.slice(0, 3) },
    // Two attributes that most numbers match.
    { businessProfileId: PROFILES[0]?.id ?? '', reportingGroup: GROUPS },
    { reportingGroup: GROUPS, internalName: NAMES },
    { carrier: ['AT&T'] },
    { carrier: CARRIERS.slice(0, 3) },
    { feature: ['brandedCallerId'] },
    { feature: FEATURES },
    { status: ['approved'] },
    { status: ['rejected.optIn'] },
    { status: ['rejected', 'approved.optOut', 'pending.optIn'] },
    { detailedStatus: ['approved.optIn'] },
    { detailedStatus: ['rejected.optIn', 'approved.optOut'] },
  ];
  const pairs = values.flatMap((first, i) => values.slice(i).map((second) => ({ ...first, ...second })));
  for (const query of randomPart(pairs)) {
    const expected = find(list, query);
    expect(await itemsOf(query, 100), searchOf(query)).toEqual(expected);
    const phoneNumbers = expected.map(({ phoneNumber }) => phoneNumber);
    expect(await walkInSmallBatches(query, 5), searchOf(query)).toEqual(phoneNumbers);
  }
});
