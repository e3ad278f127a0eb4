/** What happens to reads on connections that respond late, partly, or not at all. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { closeDatabase, type Database, openDatabase } from '../../src/database/connect.js';
import { Reader } from '../../src/database/reads.js';
import { openLog } from '../../src/log.js';
import { createMetrics } from '../../src/metrics.js';
import { type PostgresServer, startPostgres } from '../support/postgresServer.js';
import { openToxicProxy, type ToxicProxy } from '../support/toxicProxy.js';

const TIME_LIMIT_MS = 1000;

let server: PostgresServer;
let proxy: ToxicProxy;
let database: Database;
let reader: Reader;

beforeAll(async () => {
  server = await startPostgres();
});
afterAll(() => server.remove());
beforeEach(async () => {
  proxy = await openToxicProxy(server.port);
  database = openDatabase(proxy.through(server.url), { statementTimeout: TIME_LIMIT_MS });
  reader = new Reader(database, openLog({ LOG_LEVEL: 'silent' }), createMetrics(1));
  await read();
  return async () => {
    reader.close();
    await closeDatabase(database, 0);
    await proxy.close();
  };
});

/** Reads the process of PostgreSQL that responds. */
const read = (seconds = 0, limitMs = 5000) =>
  reader.read(async () => {
    const [row] = await database.$client`SELECT pg_backend_pid() AS pid, pg_sleep(${seconds})`;
    return row?.pid as number;
  }, limitMs);
const readTogether = (count: number, seconds = 0) => Promise.all(Array.from({ length: count }, () => read(seconds)));

it('reads that are answered late, but before their time limit, keep their connections', async () => {
  const before = new Set(await readTogether(10, 0.3));
  proxy.behave('slow', 600);
  await readTogether(20, 0.9);
  proxy.behave('passing');
  expect(new Set(await readTogether(10, 0.3))).toEqual(before);
});

it('connections that nobody asks anything are never taken for dead', async () => {
  const before = new Set(await readTogether(10, 0.3));
  await sleep(TIME_LIMIT_MS + 1500);
  expect(new Set(await readTogether(10, 0.3))).toEqual(before);
});

it('a read that was given up still has the dead connection replaced', async () => {
  proxy.forgetConnections();
  await expect(read(0, 200)).rejects.toThrow('in time');
  await sleep(1800);
  const begin = performance.now();
  await read();
  expect(performance.now() - begin).toBeLessThan(1000);
});

it('reads on connections that were cut silently are answered, even while others keep answering', async () => {
  await readTogether(3, 0.1);
  proxy.forgetConnections();
  const cut = readTogether(3);
  let isOver = false;
  const others = (async () => {
    for (; !isOver; await sleep(20)) await read();
  })();
  await Promise.all([
    cut.finally(() => {
      isOver = true;
    }),
    others,
  ]);
});
