import { Readable } from 'node:stream';
import fc from 'fast-check';
import { beforeEach, describe, expect, inject, it } from 'vitest';
import { HEADER, toCsv } from '../../../src/operator/numbers/csvOutput.js';
import { exportNumbers } from '../../../src/operator/numbers/export.js';
import { importNumbers } from '../../../src/operator/numbers/import.js';
import { filterOf } from '../../../src/page/filter.js';
import { untilLockIsAwaited, useConnection } from '../../support/connection.js';
import { useDatabase } from '../../support/database.js';
import { itemsOf, ndjson } from '../../support/ndjson.js';
import { numbers, numberWith, write } from '../../support/numbers.js';
import { byBytes } from '../../support/reference.js';

const ALL = filterOf({});

/** Numbers are exported from the first database, and imported into the other. */
const [database, other] = [useDatabase(), useDatabase()];

const clear = () =>
  Promise.all(
    [database, other].map(({ sql }) => sql`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`),
  );
beforeEach(clear);

/** Texts that a spreadsheet program, or a reader of CSV, may take for something else. */
const oddText = fc.oneof(
  fc.constantFrom(
    // What stands between two items, and before a status.
    ...['},{"id":"', ',{"id":"', '"detailedStatus":', '\\","detailedStatus":"', 'a\\'],
    ...['{}', 'null', 'NULL', ' ', ' a ', '"', 'a,b', 'a;b', '=SUM(A1)', '+1', '007', '1e5', '\\N', '👍🏽', '\ufeffa'],
  ),
  fc.string({ unit: 'grapheme', minLength: 1, maxLength: 15 }).filter((text) => !/\p{Cc}/u.test(text)),
  fc.constantFrom('x', '"', '東').map((text) => text.repeat(255)),
);
/** Numbers with odd texts in their names, and at the beginning of their carriers' names. */
const oddNumbers = fc.tuple(numbers, fc.array(oddText, { minLength: 20 })).map(([list, texts]) =>
  list.map((number, i) => {
    const text = texts[i % texts.length] ?? '';
    const carrierStatuses = number.carrierStatuses.map((one) => ({
      ...one,
      carrier: `${text.slice(0, 240)}${one.carrier}`,
    }));
    return { ...number, internalName: text, reportingGroup: text, carrierStatuses };
  }),
);

async function exported({ url }: { url: string }, to = (lines: string) => lines) {
  let text = '';
  const counts = await exportNumbers(url, ALL, async (lines) => {
    text += to(lines);
  });
  return { text, counts };
}

describe('export', () => {
  it('writes all items in order, and the same bytes in both formats after an import of either', async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(numbers, oddNumbers), fc.boolean(), async (list, byCsv) => {
        await clear();
        await write(database.drizzle, list);
        const { text, counts } = await exported(database);
        expect(itemsOf(text)).toEqual([...list].sort((a, b) => byBytes(a.phoneNumber, b.phoneNumber)));
        const carrierStatuses = list.flatMap((number) => number.carrierStatuses).length;
        expect(counts).toEqual({ numbers: list.length, carrierStatuses });
        const csv = `${HEADER}${(await exported(database, toCsv)).text}`;
        const file = Readable.from([Buffer.from(byCsv ? csv : text)]);
        expect(await importNumbers(other.url, file, { formats: byCsv ? ['csv'] : [] })).toEqual(counts);
        expect((await exported(other)).text).toBe(text);
        expect(`${HEADER}${(await exported(other, toCsv)).text}`).toBe(csv);
      }),
      { numRuns: Math.ceil(30 * inject('tries')) },
    );
  });

  it('writes nothing if there are no numbers', async () => {
    expect(await exported(database)).toEqual({ text: '', counts: { numbers: 0, carrierStatuses: 0 } });
  });

  it('writes what another program commits in one transaction with TRUNCATE', async () => {
    await write(database.drizzle, [numberWith({ phoneNumber: '+14155550100' })]);
    const { text } = await exported(database);
    const sql = useConnection(database.url);
    await sql.unsafe('BEGIN; CREATE TEMP TABLE copy AS TABLE items; TRUNCATE items; INSERT INTO items TABLE copy');
    const exporting = exported(database);
    await untilLockIsAwaited(database.sql, 'the export waits');
    await sql`COMMIT`;
    expect((await exporting).text).toBe(text);
  });

  it('writes one snapshot page by page, although other programs write meanwhile', async () => {
    const phoneNumbers = Array.from({ length: 3500 }, (_, i) => `+1${2_000_000_000 + i}`);
    const lines = (list: string[]) =>
      Readable.from([ndjson(list.map((phoneNumber) => ({ ...numberWith({ phoneNumber }), id: undefined })))]);
    await importNumbers(database.url, lines(phoneNumbers));
    const { text: before } = await exported(database);
    let writes = 0;
    let during = '';
    let isWriting = false;
    await exportNumbers(database.url, ALL, async (text) => {
      expect(isWriting).toBe(false);
      isWriting = true;
      if (++writes === 1) {
        await database.sql`DELETE FROM branded_phone_numbers WHERE phone_number > '+12000003000'`;
        await database.sql`UPDATE branded_phone_numbers SET internal_name = 'Another' WHERE phone_number > '+12000002000'`;
        await importNumbers(database.url, lines(['+12000002500', '+12000009999']));
      }
      during += text;
      isWriting = false;
    });
    expect(writes).toBe(4);
    expect(during).toBe(before);
    expect((await exported(database)).text).not.toBe(before);
  });
});
