/** The sockets of a pool, on a real PostgreSQL and on a host that closes every connection. */
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { createDatabase } from '../support/database.js';

describe('the sockets of a pool', () => {
  it('reject the statements in progress when they are cut, and then connect again', async () => {
    const { url, drop } = await createDatabase();
    const database = openDatabase(url);
    const statements = Promise.allSettled(Array.from({ length: 10 }, () => database.$client`SELECT pg_sleep(30)`));
    await sleep(500);
    database.sockets.reconnect();
    const outcomes = (await statements) as PromiseRejectedResult[];
    expect(outcomes.map(({ reason }) => reason?.code)).toEqual(Array(10).fill('CONNECTION_CLOSED'));
    expect(await database.$client`SELECT 1 AS one`).toEqual([{ one: 1 }]);
    await closeDatabase(database);
    await drop();
  });

  it('reject each statement after one attempt if the host closes every connection', async () => {
    let connections = 0;
    const host = createServer((client) => {
      connections++;
      client.destroy();
    }).listen(0, '127.0.0.1');
    await once(host, 'listening');
    const database = openDatabase(`postgres://postgres@127.0.0.1:${(host.address() as AddressInfo).port}/x`);
    const [outcome] = await Promise.allSettled([database.$client`SELECT 1`]);
    expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'CONNECTION_CLOSED' } });
    for (let i = 0; i < 20; i++) await expect(database.$client`SELECT 1`.then()).rejects.toThrow('without a response');
    expect(connections).toBe(21);
    await closeDatabase(database, 0);
    host.close();
  });
});
