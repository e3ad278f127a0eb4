/** A database that is slow, but answers: its connections are kept. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { type PostgresServer, startPostgres } from '../../cluster/postgresServer.js';
import { closeDatabase, type Database, openDatabase } from '../../src/database/connect.js';
import { Reader } from '../../src/database/reads.js';
import { openLog } from '../../src/log.js';
import { createMetrics } from '../../src/metrics.js';
import { openToxicProxy, type ToxicProxy } from './toxicProxy.js';

let server: PostgresServer;
let proxy: ToxicProxy;
let database: Database;
let reader: Reader;
let replacements = 0;

beforeAll(async () => {
  // One that asks for no password, which would take more slow answers than a ping has time for.
  server = await startPostgres();
  proxy = await openToxicProxy(server.port);
  database = openDatabase(proxy.through(server.url), { onFailover: () => replacements++ });
  reader = new Reader(database, openLog({ LOG_LEVEL: 'silent' }), createMetrics(1));
});
afterAll(async () => {
  reader.close();
  await closeDatabase(database, 0);
  await proxy.close();
  await server.remove();
});
beforeEach(async () => {
  proxy.behave('passing');
  expect(await read()).toEqual('read');
  replacements = 0;
});

const read = (limitMs = 2000) => reader.read(() => database.$client`SELECT`.then(() => 'read'), limitMs);

it('a read that is answered while the database is pinged has no connection replaced', async () => {
  // The ping begins when the read is late, takes three slow answers of the second that it has, and finds nothing that the
  // database works on: by then the read, which takes two, is answered.
  proxy.behave('slow', 250);
  await expect(read(200)).rejects.toThrow('in time');
  await sleep(1500);
  expect(replacements).toBe(0);
});

it('a read that is not answered by then has the connections replaced', async () => {
  proxy.forgetConnections();
  await expect(read(200)).rejects.toThrow('in time');
  await sleep(1500);
  expect(replacements).toBe(1);
});
