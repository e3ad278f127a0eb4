/** The service and the commands on a streaming replica. */
import type { Sql } from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { migrateDatabase } from '../../src/database/migrations.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import type { Service } from '../../src/service/server.js';
import { runOn, runProgram, runServe } from '../support/command.js';
import { connectTo } from '../support/connection.js';
import { type PostgresServer, startPostgres, startReplica } from '../support/postgresServer.js';
import { listenOn } from '../support/service.js';
import { until } from '../support/until.js';

describe('a replica', () => {
  let primary: PostgresServer;
  let replica: PostgresServer;
  let onPrimary: Sql;
  let onReplica: Sql;
  let services: { primary: Service; replica: Service };

  beforeAll(async () => {
    primary = await startPostgres({ synchronous_commit: 'local' });
    await migrateDatabase(primary.url, migrationsFolder);
    replica = await startReplica(primary);
    onPrimary = connectTo(primary.url);
    onReplica = connectTo(replica.url);
    await onPrimary`CREATE DATABASE not_migrated`;
    const copies = () => onReplica`SELECT FROM pg_database WHERE datname = 'not_migrated'`;
    await until(async () => (await copies()).length === 1, 'it is replayed');
    services = { primary: await listenOn(primary.url), replica: await listenOn(replica.url) };
  });
  afterAll(async () => {
    await services?.replica.close();
    await Promise.all([onPrimary?.end(), onReplica?.end()]);
    await Promise.all([replica?.remove(), primary?.remove()]);
  });

  it('with an older schema makes serve wait until the primary is migrated', async () => {
    const url = replica.url.replace(/postgres$/, 'not_migrated');
    await expect(migrateDatabase(url, migrationsFolder)).rejects.toThrow(
      /^DATABASE_URL is a replica, and only its primary can be migrated/,
    );
    const service = await runServe([], { DATABASE_URL: url, REDIS_URL: 'redis://127.0.0.1:1' });
    await service.untilAlive();
    const isWaiting = async () =>
      (await service.get('/readyz'))?.body.includes('until the primary is migrated') ?? false;
    await until(isWaiting, '/readyz says what it waits for');
    await migrateDatabase(primary.url.replace(/postgres$/, 'not_migrated'), migrationsFolder);
    await service.untilReady();
    service.stop();
    expect(await service.end()).toBe(0);
  });

  it('makes serve exit if REDIS_URL is not set', async () => {
    expect(await runProgram(['serve'], '', { environment: { DATABASE_URL: replica.url, PORT: '0' } })).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^set REDIS_URL: DATABASE_URL is a read-only replica[^\n]*\n$/),
    });
  });

  it.each([
    'check',
    'import -',
    'delete --if-exists',
    'keys create --name x',
    'keys revoke 5d9dc9f8-1818-4811-892f-902bd23f0824',
  ])('is rejected by %s, which says what to name instead', async (line) => {
    expect(await runOn(replica.url, line.split(' '), '+14155550123')).toMatchObject({
      code: 1,
      stderr: 'DATABASE_URL leads to a read-only replica: set it to the primary (behind deploy/haproxy, port 5432)\n',
    });
  });

  it.each(['export', 'keys list', 'migrate'])('is read by %s', async (line) => {
    expect(await runOn(replica.url, line.split(' '))).toMatchObject({ code: 0 });
  });

  it('serves pages and is ready while its primary is down, and after its promotion', async () => {
    const { url } = services.replica;
    const statuses = () =>
      Promise.all(['/v1/brandedPhoneNumbers', '/readyz'].map(async (path) => (await fetch(url + path)).status));
    expect(await statuses()).toEqual([200, 200]);
    await Promise.all([onPrimary.end(), services.primary.close()]);
    await primary.stop();
    expect(await statuses()).toEqual([200, 200]);
    await onReplica`SELECT pg_promote(true, 10)`;
    expect(await statuses()).toEqual([200, 200]);
  });
});
