/** Imports, deletes and checks beside programs that write: none of their transactions is ended for a command's sake. */
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { expect, inject, test } from 'vitest';
import { codeOf } from '../../../src/database/errors.js';
import { deriveAll } from '../../../src/operator/numbers/check.js';
import { deleteNumbers } from '../../../src/operator/numbers/delete.js';
import { importNumbers } from '../../../src/operator/numbers/import.js';
import { InputError } from '../../../src/operator/numbers/lines.js';
import { connectTo } from '../../support/connection.js';
import { expectDerivedToAgree } from '../../support/derived.js';
import { DETAILED_STATUSES } from '../../support/numbers.js';
import { database, databaseUrl, manyNumbers, ndjson, useDatabase } from './importing.js';

useDatabase();

const WRITERS = 4;
const NUMBERS = 60;
const DURATION_MS = 6000 * inject('tries');
/** PostgreSQL's code for an old snapshot, which any other writer of the same row may bring about. */
const OLD_SNAPSHOT = '40001';

/** Of the numbers that one writer has to itself, so that writers do not end each other. */
const transactionOf = (writer: number) =>
  fc.record({
    isolation: fc.constantFrom('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'),
    statements: fc.array(
      fc
        .record({
          table: fc.constantFrom('branded_phone_numbers', 'carrier_statuses'),
          index: fc.nat(NUMBERS / WRITERS - 1),
          status: fc.constantFrom(...DETAILED_STATUSES),
          isDeferred: fc.boolean(),
        })
        .map(({ table, index, status, isDeferred }) => {
          const phoneNumber = `'+1${2_000_000_000 + index * WRITERS + writer}'`;
          const set = table === 'carrier_statuses' ? `detailed_status = '${status}'` : `internal_name = '${status}'`;
          return `SET LOCAL branded_phone_numbers.defer = '${isDeferred ? 'on' : 'off'}';
            UPDATE ${table} SET ${set} WHERE phone_number = ${phoneNumber}`;
        }),
      { minLength: 1, maxLength: 4 },
    ),
  });

test('imports, deletes and checks cause no deadlock or lock timeout of other writers, and the read model stays right', async () => {
  const seed = Date.now();
  const items = manyNumbers(NUMBERS);
  const bytes = (text: string) => Readable.from([Buffer.from(text)]);
  await importNumbers(database, bytes(ndjson(items)));
  const ended: string[] = [];
  const counts = { committed: 0, commands: 0 };

  const transactions = Array.from({ length: WRITERS }, (_, writer) =>
    fc.sample(transactionOf(writer), { numRuns: 2000, seed: seed + writer }),
  );
  const end = performance.now() + DURATION_MS;

  const write = async (writer: number) => {
    const sql = connectTo(databaseUrl);
    // Half of what the commands' sessions have: in a deadlock that lasts, the writer is ended.
    await sql`SET deadlock_timeout = '500ms'`;
    for (const { isolation, statements } of transactions[writer] ?? []) {
      if (performance.now() > end) break;
      await sql.unsafe([`BEGIN ISOLATION LEVEL ${isolation}`, ...statements, 'COMMIT'].join(';')).then(
        () => counts.committed++,
        async (error) => {
          if (codeOf(error) !== OLD_SNAPSHOT || isolation === 'READ COMMITTED') ended.push(`${error}`);
          await sql`ROLLBACK`;
        },
      );
    }
    await sql.end();
  };
  const repeat = async (command: (i: number) => Promise<unknown>) => {
    for (let i = 0; performance.now() < end; i++) {
      // Another command may have deleted a number, or have given its id to it.
      await command(i).catch((error) => error instanceof InputError || ended.push(`${error} ${error.cause}`));
      counts.commands++;
      await sleep(20);
    }
  };
  const named = (name: string) => ndjson(items.map((item) => ({ ...item, reportingGroup: name })));
  const phoneNumbers = items.map(({ phoneNumber }) => phoneNumber);
  await Promise.all([
    ...Array.from({ length: WRITERS }, (_, writer) => write(writer)),
    repeat((i) => importNumbers(database, bytes(named(`First ${i}`)))),
    repeat((i) => importNumbers(database, bytes(named(`Second ${i}`)))),
    repeat((i) =>
      deleteNumbers(database, bytes(phoneNumbers.slice(i % 50, (i % 50) + 10).join('\n')), { ifExists: true }),
    ),
    repeat(() => deriveAll(database, { keep: true })),
  ]);
  expect(ended, `seed ${seed}`).toEqual([]);
  expect(Math.min(...Object.values(counts)), JSON.stringify(counts)).toBeGreaterThan(0);
  await expectDerivedToAgree(database.$client);
});
