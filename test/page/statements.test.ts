/** The SQL of typical requests and the scans of its plans, kept in test/page/statements for readers and reviewers. */
import type { Column, SQL, Table } from 'drizzle-orm';
import { beforeAll, expect, expectTypeOf, test } from 'vitest';
import type { ListBrandedPhoneNumbersRequest } from '../../generated/types/apis/index.js';
import { filterOf } from '../../src/page/filter.js';
import { type BatchParameters, fragment, parameter } from '../../src/page/fragment.js';
import { useDatabase } from '../support/database.js';
import { openExplainer, type PlanNode } from '../support/explain.js';
import { profileId } from '../support/generatedNumbers.js';
import { fillSkewed } from './skewedNumbers.js';

const REQUESTS: Record<string, ListBrandedPhoneNumbersRequest> = {
  'no filter': {},
  'a phone number': { phoneNumber: '+12000003500' },
  'a reporting group': { reportingGroup: ['Group 1'] },
  'carrier, feature and status': { carrier: ['AT&T'], feature: ['brandedCallerId'], status: ['approved.optIn'] },
  'reporting groups and a status': { reportingGroup: ['Group 1', 'Group 2'], status: ['rejected'] },
  'business profile and internal name': { businessProfileId: profileId(1), internalName: ['Line 1'] },
};

const database = useDatabase();

beforeAll(async () => {
  await fillSkewed(database.sql, 5_000);
  await database.sql`ANALYZE`;
});

test.each(Object.entries(REQUESTS))(
  'the statements and scans of a page match test/page/statements: %s',
  async (name, request) => {
    const { explain, close } = openExplainer(database.url, 'force_generic_plan');
    const { statements } = await explain({ filter: filterOf(request), visibleProfiles: null, after: '', size: 25 });
    await close();
    const texts = [...new Set(statements.map(({ query, plan }) => `${query};\n\n-- ${scansOf(plan).join('\n-- ')}\n`))];
    await expect(texts.join('\n\n')).toMatchFileSnapshot(`statements/${name}.sql`);
  },
);

test('a page does not measure the reach of its only scan', async () => {
  const { explain, close } = openExplainer(database.url, 'force_generic_plan');
  const carrier = Array.from({ length: 7 }, (_, index) => `Carrier ${index}`);
  const { statements } = await explain({ filter: filterOf({ carrier }), visibleProfiles: null, after: '', size: 25 });
  await close();
  expect(statements.map(({ query }) => query.includes('AS reach'))).toEqual([false, false]);
});

test('fragments accept only names of parameters and parts of the schema (checked by tsc)', () => {
  expectTypeOf(parameter).parameter(0).toEqualTypeOf<keyof BatchParameters>();
  expectTypeOf(fragment).parameter(1).toEqualTypeOf<SQL | Table | Column>();
});

/** Returns the table scans of a plan, in order. Other nodes differ between versions of PostgreSQL. */
function scansOf(node: PlanNode): string[] {
  const scans = node['Relation Name'] ? [`${node['Node Type']} of ${node['Index Name'] ?? node['Relation Name']}`] : [];
  return [...scans, ...(node.Plans ?? []).flatMap(scansOf)];
}
