/** When the next generation of connections takes over from one that answers late, partly, or not at all. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { openDatabase } from '../../src/database/connect.js';
import { Generations, type Prepared } from '../../src/database/generations.js';
import { Reader } from '../../src/database/reads.js';
import { openLog } from '../../src/log.js';
import { createMetrics } from '../../src/metrics.js';
import { type PostgresServer, startPostgres } from '../postgresServer.js';
import { openToxicProxy, type ToxicProxy } from './toxicProxy.js';

const TIME_LIMIT_MS = 1500;

let server: PostgresServer;
let proxy: ToxicProxy;
let generations: Generations<Prepared>;
let reader: Reader<Prepared>;
let failovers = 0;

beforeAll(async () => {
  // One that asks for no password, which would take more slow answers than a new generation has time for.
  server = await startPostgres();
});
afterAll(() => server.remove());
beforeEach(async () => {
  failovers = 0;
  proxy = await openToxicProxy(server.port);
  const open = (host: string) => ({ database: openDatabase(host, { statementTimeout: TIME_LIMIT_MS }) });
  generations = new Generations(proxy.through(server.url), open, {
    timeLimitMs: TIME_LIMIT_MS,
    onFailover: () => failovers++,
  });
  reader = new Reader(generations, openLog({ LOG_LEVEL: 'silent' }), createMetrics(1));
  expect(await read()).toBe('read');
  return async () => {
    reader.close();
    await generations.close(0);
    await proxy.close();
  };
});

const read = (seconds = 0, limitMs = 5000) =>
  reader.read(({ database }) => database.$client`SELECT pg_sleep(${seconds})`.then(() => 'read'), limitMs);
const readTogether = (count: number, seconds = 0) => Promise.all(Array.from({ length: count }, () => read(seconds)));

it('a read that is answered before a new generation answers costs no failover', async () => {
  // Its two answers take 600 ms; those of a new generation, which begins to connect after 500 ms, as long again.
  proxy.behave('slow', 300);
  expect(await read(0.001)).toBe('read');
  await sleep(1000);
  expect(failovers).toBe(0);
});

it('a read on the only connection, which was cut silently, is answered by the next generation', async () => {
  proxy.forgetConnections();
  expect(await read()).toBe('read');
  expect(failovers).toBe(1);
});

it('a read that was given up still has the connections replaced', async () => {
  proxy.forgetConnections();
  await expect(read(0, 200)).rejects.toThrow('in time');
  await sleep(1500);
  expect(failovers).toBe(1);
});

it('reads on connections that were cut silently are answered, even while others keep answering', async () => {
  await readTogether(3, 0.1);
  proxy.forgetConnections();
  const cut = readTogether(3);
  let isOver = false;
  const others = (async () => {
    for (; !isOver; await sleep(20)) await read();
  })();
  await cut.finally(() => {
    isOver = true;
  });
  await others;
  expect(failovers).toBe(1);
});

it('a statement that takes long is answered, by two generations at most, and the old one ends', async () => {
  const begin = performance.now();
  expect(await readTogether(10, 1.2)).toEqual(Array(10).fill('read'));
  // The old generation has answered; nobody had to wait for the new one.
  expect(performance.now() - begin).toBeLessThan(1700);
  expect(failovers).toBe(1);
  await sleep(1500);
  expect(proxy.connections()).toBeLessThanOrEqual(10);
});
