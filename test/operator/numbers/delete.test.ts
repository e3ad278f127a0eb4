import { Readable } from 'node:stream';
import fc from 'fast-check';
import { beforeEach, describe, expect, inject, it } from 'vitest';
import { deleteNumbers } from '../../../src/operator/numbers/delete.js';
import { exportNumbers } from '../../../src/operator/numbers/export.js';
import { InputError } from '../../../src/operator/numbers/lines.js';
import { filterOf } from '../../../src/page/filter.js';
import { useDatabase } from '../../support/database.js';
import { expectDerivedToAgree } from '../../support/derived.js';
import { itemsOf } from '../../support/ndjson.js';
import { numbers, numberWith, write } from '../../support/numbers.js';
import { byBytes } from '../../support/reference.js';
import { until } from '../../support/until.js';

const database = useDatabase();

const clear = () => database.sql`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
beforeEach(clear);

const deleteLines = (...lines: string[]) => deleteNumbers(database.url, Readable.from([lines.join('\n')]));

/** Returns all numbers, as an export has them. */
async function remaining() {
  let text = '';
  await exportNumbers(database.url, filterOf({}), async (lines) => {
    text += lines;
  });
  return itemsOf(text);
}

/** Returns the faults of the lines; fails if anything was deleted. */
async function faultsOf(...lines: string[]) {
  const before = await remaining();
  const error = await deleteLines(...lines).catch((thrown) => thrown);
  expect(await remaining()).toEqual(before);
  if (!(error instanceof InputError)) throw error;
  return error.faults;
}

describe('delete', () => {
  it('deletes only the given numbers, with their entries and items', async () => {
    await fc.assert(
      fc.asyncProperty(numbers, fc.infiniteStream(fc.boolean()), async (list, choice) => {
        await clear();
        await write(database.drizzle, list);
        const given = list.filter(() => choice.next().value);
        const { deleted } = await deleteLines(...given.map(({ phoneNumber }) => phoneNumber));
        expect(deleted).toBe(given.length);
        const left = list.filter((number) => !given.includes(number));
        expect(await remaining()).toEqual(left.sort((a, b) => byBytes(a.phoneNumber, b.phoneNumber)));
        await expectDerivedToAgree(database.sql);
      }),
      { numRuns: Math.ceil(30 * inject('tries')) },
    );
  });

  it('accepts carriage returns, spaces, blank lines and a byte order mark', async () => {
    const [one, two] = ['+14155550101', '+14155550102'];
    await write(database.drizzle, [numberWith({ phoneNumber: one }), numberWith({ phoneNumber: two })]);
    expect(await deleteLines(`\ufeff${one}\r`, '', `  ${two}\t`, '\r')).toEqual({ lines: 2, deleted: 2 });
  });

  it.each(['\ufeff', ''])('reports once that a list is not UTF-8, but UTF-16 after %j', async (mark) => {
    const text = `${mark}+14155550101\r\n+14155550102\r\n+14155550103\r\n`;
    const deleting = deleteNumbers(database.url, Readable.from([Buffer.from(text, 'utf16le')]));
    await expect(deleting).rejects.toThrow(/^line 1: is not text in UTF-8; [^\n]*iconv -f UTF-16 [^\n]*$/);
  });

  it('counts only the numbers that it deletes itself, if another program deletes some meanwhile', async () => {
    const phoneNumbers = Array.from({ length: 10 }, (_, i) => `+1415555010${i}`);
    await write(
      database.drizzle,
      phoneNumbers.map((phoneNumber) => numberWith({ phoneNumber })),
    );
    const { sql: other } = database;
    await other`BEGIN`;
    await other`DELETE FROM branded_phone_numbers WHERE phone_number > '+14155550105'`;
    const deleting = deleteLines(...phoneNumbers);
    await until(async () => (await remaining()).length === 4, 'all other numbers are deleted');
    await other`COMMIT`;
    expect(await deleting).toEqual({ lines: 10, deleted: 6 });
  });

  it('deletes nothing and reports every faulty line if a line is faulty', async () => {
    await write(database.drizzle, [numberWith({ phoneNumber: '+14155550101' })]);
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
      { line: 5, reason: '+14155550101 is given twice', earlier: 1 },
      { line: 6, reason: '"a\\u0007b" is not a phone number in E.164, for example +14155550123' },
      {
        line: 7,
        reason: `"\\u202a+14155550101" is not a phone number in E.164, for example +14155550123`,
      },
    ]);
  });

  it.each([
    ['not phone numbers', 'x'],
    ['numbers that do not exist', '+14155550199'],
  ])('reports only the first hundred lines that are %s', async (_what, line) => {
    const faults = await faultsOf(...Array.from({ length: 300 }, (_, i) => `${line}${i}`));
    expect(faults.map((fault) => fault.line)).toEqual(Array.from({ length: 100 }, (_, i) => i + 1));
  });
});
