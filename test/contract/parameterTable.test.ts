/** The README's parameter table is made from the contract, so that the two can't differ. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { withParameterTable } from '../../scripts/parameterTable.js';
import { parameters } from '../../src/contract.js';

const readme = readFileSync('README.md', 'utf8');

it('The README has the table that is made: a row for each parameter in the order of the contract', () => {
  expect(withParameterTable(readme)).toBe(readme);
  expect([...readme.matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name)).toEqual([...parameters.keys()]);
  expect(readme).toContain('| `size` | page size, 1 to 100, default 25 | once |');
  expect(readme).toContain('| `feature` | `brandedCallerId`, `spamRemediation` | up to 50 times |');
  expect(readme).toMatch(/^\| `status` \| `submitted for review`, .*`unregistered`, `pending.initialOptIn`, /m);
});

it('A table that differs is replaced, and nothing else; a page without its markers is refused', () => {
  const changed = readme.replace('page size, 1 to 100', 'page size, 1 to 50').replace(/^\| `status` .*\n/m, '');
  expect(changed).not.toBe(readme);
  expect(withParameterTable(changed)).toBe(readme);
  expect(() => withParameterTable('# Title\n')).toThrow('<!-- /parameters -->');
});
