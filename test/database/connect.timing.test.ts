import { sql } from 'drizzle-orm';
import { expect, inject, it, onTestFinished } from 'vitest';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { openToxicProxy } from '../support/toxicProxy.js';

it('a result is whole after the connection’s previous response broke off', async () => {
  const url = inject('postgresUrl');
  const proxy = await openToxicProxy(Number(new URL(url).port));
  const database = openDatabase(proxy.through(url), { connections: 1, statementTimeout: 1000 });
  onTestFinished(async () => {
    await closeDatabase(database, 0);
    await proxy.close();
  });
  const { $client, sockets } = database;
  const breakOff = async () => {
    await $client.unsafe('SELECT');
    proxy.halveResponses();
    // The driver receives the first row, and half of the second.
    const rows = $client.unsafe("SELECT repeat('x', size) FROM unnest(ARRAY[1, 10000]) AS size");
    await expect(sockets.awaited(rows)).rejects.toMatchObject({ code: 'CONNECTION_CLOSED' });
  };
  await breakOff();
  expect([...(await $client.unsafe('SELECT 7 AS seven'))]).toEqual([{ seven: 7 }]);
  await breakOff();
  expect([...(await database.execute(sql`SELECT 7 AS seven`))]).toEqual([{ seven: 7 }]);
  await breakOff();
  expect((await $client.unsafe('SELECT 7 AS seven').raw()).map(([seven]) => `${seven}`)).toEqual(['7']);
});
