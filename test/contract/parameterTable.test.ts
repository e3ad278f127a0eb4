/** The README's parameter table is made from the contract, so that the two can't differ. */
import { describe, expect, it } from 'vitest';
import { withParameterTable } from '../../scripts/parameterTable.js';
import { parameters } from '../../src/contract.js';

const page = (table: string) =>
  `# Title\n\n<!-- parameters: made by \`npm run docs:table\` -->${table}<!-- /parameters -->\n\nThe rest.\n`;
const made = withParameterTable(page('\n'));

describe('The parameter table', () => {
  it('has one row for each parameter, in the order of the contract', () => {
    const names = [...made.matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name);
    expect(names).toEqual([...parameters.keys()]);
  });

  it('says the bounds and the default of a number', () => {
    expect(made).toContain('| `size` | page size, 1 to 100, default 25 | once |');
  });

  it('lists every value of a closed list', () => {
    expect(made).toContain('| `feature` | `brandedCallerId`, `spamRemediation` | up to 50 times |');
    expect(made).toMatch(/^\| `status` \| `submitted for review`, .*`unregistered`, `pending.initialOptIn`, /m);
  });

  it('leaves the rest of the page as it is', () => {
    expect(made).toMatch(/^# Title\n\n/);
    expect(made).toMatch(/\n\nThe rest\.\n$/);
  });

  it('changes nothing when it is made again', () => {
    expect(withParameterTable(made)).toBe(made);
  });

  it('replaces a table that differs', () => {
    expect(withParameterTable(page('\n| `size` | 1 to 50 |\n'))).toBe(made);
  });

  it('refuses a page without its markers', () => {
    expect(() => withParameterTable('# Title\n')).toThrow('<!-- /parameters -->');
  });
});
