/** Commands whose connection is cut silently, or only seems to be, while they run statements without a time limit. */
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import { deleteNumbers } from '../../../src/operator/numbers/delete.js';
import { exportNumbers } from '../../../src/operator/numbers/export.js';
import { importNumbers } from '../../../src/operator/numbers/import.js';
import { inWatchedTransaction } from '../../../src/operator/numbers/watchedTransaction.js';
import { filterOf } from '../../../src/page/filter.js';
import { connectTo } from '../../support/connection.js';
import { closeDatabase, type TestConnection as Database, openDatabase, useDatabase } from '../../support/database.js';
import { ndjson } from '../../support/ndjson.js';
import { numberWith, write } from '../../support/numbers.js';
import { openToxicProxy } from '../../support/toxicProxy.js';

const created = useDatabase();
const NUMBER = numberWith({ phoneNumber: '+11' });
const ALL = filterOf({});
/** Longer than a connection that was cut is kept. */
const LONG_MS = 25_000;

beforeAll(() => write(created.drizzle, [NUMBER]));

/** Runs `use` with a database behind a proxy, and a function that cuts its open connections silently. */
async function behindProxy<T>(use: (database: Database, cut: () => void) => Promise<T>): Promise<T> {
  const proxy = await openToxicProxy(Number(new URL(created.url).port));
  // Sessions with this name are looked for in PostgreSQL, which no other test has.
  const database = openDatabase(`${proxy.through(created.url)}?application_name=${proxy.port}`);
  try {
    return await use(database, proxy.forgetConnections);
  } finally {
    await closeDatabase(database, 0);
    await proxy.close();
  }
}

/** An input that cuts the connection before it ends. */
async function* cutBeforeEnd(text: string, cut: () => void) {
  yield Buffer.from(text);
  await sleep(500);
  cut();
}

describe.concurrent('a command whose connection is cut silently ends, since nothing can be retried:', () => {
  it.each<[string, (database: Database, cut: () => void) => Promise<unknown>]>([
    ['an export', (database, cut) => exportNumbers(database.url, ALL, async () => cut())],
    [
      'an import that has read its input',
      (database, cut) => importNumbers(database.url, Readable.from(cutBeforeEnd(ndjson([NUMBER]), cut))),
    ],
    [
      'a delete that has read its input',
      (database, cut) => deleteNumbers(database.url, Readable.from(cutBeforeEnd('+11\n', cut))),
    ],
  ])('%s', async (_what, run) => {
    await expect(behindProxy(run)).rejects.toMatchObject({ code: 'CONNECTION_CLOSED' });
  });
});

describe.concurrent('a command whose connection is silent goes on', () => {
  it('while PostgreSQL works', async () => {
    const sleeping = behindProxy((database) =>
      inWatchedTransaction(database.url, 'READ COMMITTED', (sql) => sql`SELECT pg_sleep(${LONG_MS / 1000})::text`),
    );
    expect(await sleeping).toHaveLength(1);
  });

  it('while it waits for a lock', async () => {
    const holder = connectTo(created.url);
    await holder`BEGIN`;
    await holder`LOCK TABLE items`;
    setTimeout(() => void holder.end(), LONG_MS);
    expect(await behindProxy((database) => exportNumbers(database.url, ALL, async () => {}))).toMatchObject({
      numbers: 1,
    });
  });

  it('while it waits for the reader of its output', async () => {
    const counts = await behindProxy((database) => exportNumbers(database.url, ALL, () => sleep(LONG_MS)));
    expect(counts).toMatchObject({ numbers: 1 });
  });

  it('while it waits for its input', async () => {
    async function* slow() {
      await sleep(LONG_MS);
      yield Buffer.from(ndjson([NUMBER]));
    }
    const counts = await behindProxy((database) => importNumbers(database.url, Readable.from(slow())));
    expect(counts).toMatchObject({ numbers: 1 });
  });
});
