/** The sockets of a client's connections, on a real PostgreSQL behind a network that fails. */
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { createDatabase } from '../support/database.js';

it('connections that are cut reject what waits on them, and the next statement is answered', async () => {
  const { url, drop } = await createDatabase();
  const database = openDatabase(url);
  const waiting = Promise.allSettled(Array.from({ length: 10 }, () => database.$client`SELECT pg_sleep(30)`));
  await sleep(500);
  database.sockets.reconnect();
  const outcomes = (await waiting) as PromiseRejectedResult[];
  expect(outcomes.map(({ reason }) => reason?.code)).toEqual(Array(10).fill('CONNECTION_CLOSED'));
  expect(await database.$client`SELECT 1 AS one`).toEqual([{ one: 1 }]);
  await closeDatabase(database);
  await drop();
});

it('a host that accepts connections and closes them is an error, and is not asked in a loop', async () => {
  let connections = 0;
  const host = createServer((client) => {
    connections++;
    client.destroy();
  }).listen(0, '127.0.0.1');
  await once(host, 'listening');
  const database = openDatabase(`postgres://postgres@127.0.0.1:${(host.address() as AddressInfo).port}/x`);
  const [outcome] = await Promise.allSettled([database.$client`SELECT 1`]);
  expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'CONNECTION_CLOSED' } });
  for (let i = 0; i < 20; i++) await expect(database.$client`SELECT 1`.then()).rejects.toThrow('without an answer');
  expect(connections).toBe(21);
  await closeDatabase(database, 0);
  host.close();
});
