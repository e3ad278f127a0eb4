/** What starts and pages do on a replica: a real primary and its streaming replica. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config.js';
import { migrateDatabase } from '../../src/database/migrations.js';
import { openLog } from '../../src/log.js';
import { migrationsFolder, packageFolder } from '../../src/packageFolder.js';
import { startService } from '../../src/server.js';
import { connectTo } from '../connection.js';
import { type PostgresServer, startPostgres, startReplica } from '../postgresServer.js';

describe('a replica', () => {
  let primary: PostgresServer;
  let replica: PostgresServer;
  let onPrimary: Sql;
  let onReplica: Sql;

  beforeAll(async () => {
    primary = await startPostgres({ synchronous_commit: 'local' });
    await migrateDatabase(primary.url, migrationsFolder);
    replica = await startReplica(primary);
    onPrimary = connectTo(primary.url);
    onReplica = connectTo(replica.url);
    await onPrimary`CREATE DATABASE not_migrated`;
    await onPrimary`CREATE TABLE written (at timestamptz)`;
    await replayed(async () => (await onReplica`SELECT FROM pg_database WHERE datname = 'not_migrated'`).length === 1);
  });
  afterAll(async () => {
    await Promise.all([onPrimary?.end(), onReplica?.end()]);
    await Promise.all([replica?.remove(), primary?.remove()]);
  });

  async function replayed(is: () => Promise<boolean>): Promise<void> {
    for (let attempt = 0; !(await is()); attempt++) {
      if (attempt === 200) throw new Error('it is not replayed');
      await sleep(50);
    }
  }

  it('is not migrated, but found to be up to date', async () => {
    expect(await migrateDatabase(replica.url, migrationsFolder)).toBe('replica');
    expect(await migrateDatabase(primary.url, migrationsFolder)).toBe('primary');
  });

  it('with an older schema stops the start', async () => {
    const url = replica.url.replace(/postgres$/, 'not_migrated');
    await expect(migrateDatabase(url, migrationsFolder)).rejects.toThrow(
      /^DATABASE_URL is a replica, and only its primary can be migrated/,
    );
    expect(await serve(url, { REDIS_URL: 'redis://127.0.0.1:1' })).toEqual({
      status: 1,
      output: expect.stringMatching(
        /^database: \S+\nDATABASE_URL is a replica, and only its primary can be migrated: [^\n]*\n$/,
      ),
    });
  });

  it('without REDIS_URL stops the start', async () => {
    expect(await serve(replica.url)).toEqual({
      status: 1,
      output: expect.stringMatching(/^database: \S+\nREDIS_URL must be set where DATABASE_URL is a replica[^\n]*\n$/),
    });
  });

  /** The built command, which is expected to end on its own. */
  async function serve(url: string, environment: Record<string, string> = {}) {
    const child = spawn(process.execPath, [join(packageFolder, 'dist/src/main.js'), 'serve'], {
      env: { ...process.env, DATABASE_URL: url, PORT: '0', LOG_LEVEL: 'silent', ...environment },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const [output, [status]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
    return { status, output };
  }

  it('answers pages and is ready, even while its primary is gone and as soon as it is promoted', async () => {
    const config = readConfig({ PORT: '0', RATE_LIMIT_PER_SECOND: '0', LOG_LEVEL: 'silent' });
    const service = await startService(config, replica.url, openLog(config));
    const statuses = () =>
      Promise.all(['/v1/brandedPhoneNumbers', '/readyz'].map(async (path) => (await fetch(service.url + path)).status));
    try {
      expect(await statuses()).toEqual([200, 200]);
      await onPrimary.end();
      await primary.stop();
      expect(await statuses()).toEqual([200, 200]);
      await onReplica`SELECT pg_promote(true, 10)`;
      expect(await statuses()).toEqual([200, 200]);
    } finally {
      await service.close();
    }
  });
});
