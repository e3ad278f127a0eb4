import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { migrateDatabase } from '../../src/database/migrations.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import { connectTo, whileLocked } from '../support/connection.js';
import {
  ask,
  askTogether,
  databaseUrl,
  expectUnavailable,
  type PageResponse,
  ready,
  recovery,
  start,
  useFailingDatabase,
} from '../support/failingDatabase.js';
import { useUpConnections } from '../support/otherClients.js';
import { startPostgres } from '../support/postgresServer.js';
import { openToxicProxy } from '../support/toxicProxy.js';

useFailingDatabase();

describe('a database', () => {
  it('causes 503s in time while a table is locked, and the service opens no extra connections', async () => {
    await start(databaseUrl);
    await askTogether(20);
    const sql = connectTo(databaseUrl);
    const [connections] = await whileLocked(databaseUrl, 'LOCK items', async () => {
      for (let i = 0; i < 3; i++) for (const response of await askTogether(20)) expectUnavailable(response);
      return sql`
        SELECT count(*)::int AS count FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'branded-phone-numbers %'`;
    });
    await sql.end();
    expect(connections?.count).toBeLessThanOrEqual(21);
    await recovery();
  });

  it('causes 503s while it accepts no more connections, and is used again afterwards', async () => {
    const server = await startPostgres({ max_connections: '20' });
    onTestFinished(() => server.remove());
    await migrateDatabase(server.url, migrationsFolder);
    const between = await openToxicProxy(server.port);
    onTestFinished(() => between.close());
    await start(between.through(server.url), { DATABASE_CONNECTIONS: '4' });
    await askTogether(20);
    between.behave('refusing');
    const otherClients = await useUpConnections(server.url);
    between.behave('passing');
    for (let i = 0; i < 2; i++) for (const response of await askTogether(20)) expectUnavailable(response);
    expect(await ready()).toMatchObject({ status: 503 });
    expect(between.connections()).toBeLessThan(20);
    await otherClients.leave();
    await recovery();
    expect((await askTogether(20)).map(({ status }) => status)).toEqual(Array(20).fill(200));
  });

  it('causes 503s while it is stopped, and is used again afterwards', async () => {
    const server = await startPostgres();
    onTestFinished(() => server.remove());
    await migrateDatabase(server.url, migrationsFolder);
    await start(server.url);
    const responses: Promise<PageResponse>[] = [];
    const load = setInterval(() => responses.push(ask()), 10);
    await sleep(300);
    await server.stop();
    await sleep(1500);
    await server.start();
    await recovery();
    clearInterval(load);
    const all = await Promise.all(responses);
    expect([...new Set(all.map(({ status }) => status))].sort()).toEqual([200, 503]);
    for (const response of all.filter(({ status }) => status === 503)) expectUnavailable(response);
  });
});
