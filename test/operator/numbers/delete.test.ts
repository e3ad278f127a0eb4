import { Readable } from 'node:stream';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { BrandedPhoneNumber } from '../../../generated/types/models/index.js';
import { closeDatabase, type Database, openDatabase } from '../../../src/database/connect.js';
import { deleteNumbers } from '../../../src/operator/numbers/delete.js';
import { exportNumbers } from '../../../src/operator/numbers/export.js';
import { InputError } from '../../../src/operator/numbers/lines.js';
import { filterOf } from '../../../src/page/filter.js';
import { useDatabase } from '../../support/database.js';
import { numbers, numberWith, write } from '../../support/numbers.js';
import { byBytes } from '../../support/reference.js';

let database: Database;
const created = useDatabase();

beforeAll(() => {
  database = openDatabase(created.url);
});
afterAll(() => closeDatabase(database));
const clear = () => database.$client`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
beforeEach(clear);

const deleteLines = (...lines: string[]) => deleteNumbers(database, Readable.from([lines.join('\n')]));

async function listed(): Promise<BrandedPhoneNumber[]> {
  let text = '';
  await exportNumbers(database, filterOf({}), async (lines) => {
    text += lines;
  });
  return text
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line));
}

/** The faults of the lines, after checking that nothing was deleted. */
async function faultsOf(...lines: string[]) {
  const before = await listed();
  const error = await deleteLines(...lines).catch((thrown) => thrown);
  expect(await listed()).toEqual(before);
  if (!(error instanceof InputError)) throw error;
  return error.faults;
}

describe('delete', () => {
  it('deletes the given numbers with their derived rows, and no others', async () => {
    await fc.assert(
      fc.asyncProperty(numbers, fc.infiniteStream(fc.boolean()), async (list, choice) => {
        await clear();
        await write(database, list);
        const given = list.filter(() => choice.next().value);
        const { deleted } = await deleteLines(...given.map(({ phoneNumber }) => phoneNumber));
        expect(deleted).toBe(given.length);
        const left = list.filter((number) => !given.includes(number));
        expect(await listed()).toEqual(left.sort((a, b) => byBytes(a.phoneNumber, b.phoneNumber)));
        const [orphan] = await database.$client`
          SELECT phone_number FROM postings WHERE phone_number <> ALL (SELECT phone_number FROM branded_phone_numbers)
          UNION ALL
          SELECT phone_number FROM carrier_statuses WHERE phone_number <> ALL (SELECT phone_number FROM branded_phone_numbers)`;
        expect(orphan).toBeUndefined();
      }),
      { numRuns: 15 },
    );
  });

  it('accepts carriage returns, spaces, blank lines and a byte order mark', async () => {
    const [one, two] = ['+14155550101', '+14155550102'];
    await write(database, [numberWith({ phoneNumber: one }), numberWith({ phoneNumber: two })]);
    expect(await deleteLines(`\ufeff${one}\r`, '', `  ${two}\t`, '\r')).toEqual({ lines: 2, deleted: 2 });
  });

  it('deletes nothing and reports every faulty line if there are any', async () => {
    await write(database, [numberWith({ phoneNumber: '+14155550101' })]);
    const faults = await faultsOf(
      '+14155550101',
      '4155550101',
      '+14155550199',
      '',
      '+14155550101',
      'a\u0007b',
      '\u202a+14155550101',
    );
    expect(faults).toEqual([
      { line: 2, reason: '"4155550101" is not a phone number in E.164, for example +14155550123' },
      { line: 3, reason: 'there is no number +14155550199' },
      { line: 5, reason: '+14155550101 is already', earlier: 1 },
      { line: 6, reason: '"a\\u0007b" is not a phone number in E.164, for example +14155550123' },
      {
        line: 7,
        reason: `"\\u202a+14155550101" is not a phone number in E.164, for example +14155550123; did you mean +14155550101?`,
      },
    ]);
  });

  it.each([
    ['no phone number', 'x'],
    ['unknown', '+14155550199'],
  ])('reports the first hundred lines of many that are %s', async (_what, line) => {
    const faults = await faultsOf(...Array.from({ length: 300 }, (_, i) => `${line}${i}`));
    expect(faults.map((fault) => fault.line)).toEqual(Array.from({ length: 100 }, (_, i) => i + 1));
  });
});
