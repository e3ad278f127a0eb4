/** Replicas: what a start does on one, and when it is too far behind. With a real primary and its streaming replica. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import type { Sql } from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config.js';
import { migrateDatabase } from '../../src/database/migrations.js';
import { LagEstimate } from '../../src/database/replicaLag.js';
import { openLog } from '../../src/log.js';
import { migrationsFolder, packageFolder } from '../../src/packageFolder.js';
import { type Service, startService } from '../../src/server.js';
import { connectTo } from '../connection.js';
import { type PostgresServer, startPostgres, startReplica } from '../postgresServer.js';

const connected = { isReplica: true, isConnected: true, secondsSinceCommit: 3600 };

describe('the estimate of a lag', () => {
  it('is accurate to a second, no matter when something is written and how long its replay takes', () => {
    const write = fc.record({
      pause: fc.integer({ min: 1, max: 20_000 }),
      replay: fc.integer({ min: 0, max: 30_000 }),
    });
    fc.assert(
      fc.property(fc.array(write, { maxLength: 30 }), (writes) => {
        const estimate = new LagEstimate();
        let written = 0;
        let replayed = 0;
        const log = writes.map(({ pause, replay }) => {
          written += pause;
          // In the order in which they were written.
          replayed = Math.max(replayed, written + replay);
          return { written, replayed };
        });
        for (let now = 0; now < replayed + 2000; now += 1000) {
          const received = log.filter((each) => each.written <= now).length;
          const done = log.filter((each) => each.replayed <= now).length;
          estimate.observe({ ...connected, written: received, replayed: done }, now);
          const lag = done < received ? now - (log[done]?.written ?? now) : 0;
          expect(estimate.seconds(now) * 1000).toBeLessThanOrEqual(lag);
          expect(estimate.seconds(now) * 1000).toBeGreaterThan(lag - 1000);
        }
      }),
      { seed: 20_261_121 },
    );
  });

  it('is 0 while nobody writes, no matter how long ago the last commit was', () => {
    const estimate = new LagEstimate();
    for (let now = 0; now < 100_000; now += 1000) estimate.observe({ ...connected, written: 7, replayed: 7 }, now);
    expect(estimate.seconds(100_000)).toBe(0);
  });

  it('grows while no receiver is connected, from when one was last seen', () => {
    const estimate = new LagEstimate();
    const sample = { ...connected, written: 7, replayed: 7 };
    estimate.observe(sample, 1000);
    estimate.observe({ ...sample, isConnected: false }, 2000);
    expect(estimate.seconds(2500)).toBe(1.5);
    estimate.observe(sample, 3000);
    expect(estimate.seconds(3500)).toBe(0);
  });

  it('counts from the last commit if no receiver has been seen yet, and is infinite without any commit', () => {
    const cut = { ...connected, isConnected: false, written: 7, replayed: 7 };
    const estimate = new LagEstimate();
    estimate.observe(cut, 0);
    expect(estimate.seconds(1000)).toBe(3601);
    const never = new LagEstimate();
    never.observe({ ...cut, secondsSinceCommit: null }, 0);
    expect(never.seconds(0)).toBe(Number.POSITIVE_INFINITY);
  });

  it('counts from when the primary was last read, if reads moved to its replica because it is gone', () => {
    const estimate = new LagEstimate();
    const cut = { ...connected, isConnected: false, written: 7, replayed: 7 };
    estimate.observe({ ...cut, isReplica: false }, 1000);
    estimate.observe(cut, 2000);
    expect(estimate.seconds(2500)).toBe(1.5);
  });

  it('is 0 from a promotion on', () => {
    const estimate = new LagEstimate();
    estimate.observe({ ...connected, written: 8, replayed: 7 }, 0);
    estimate.observe({ ...connected, isReplica: false, isConnected: false, written: 0, replayed: 0 }, 5000);
    expect(estimate.seconds(9000)).toBe(0);
  });

  it('stays right for a replica that does not replay for hours, though it keeps few positions', () => {
    const estimate = new LagEstimate();
    for (let now = 0; now <= 10_000_000; now += 1000)
      estimate.observe({ ...connected, written: now + 1, replayed: 0 }, now);
    expect(estimate.seconds(10_000_000)).toBe(10_000);
  });
});

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

  it('is skipped for a primary anywhere in the list of hosts, and is enough if the primary is gone', async () => {
    const list = (...ports: number[]) =>
      `postgres://postgres@${ports.map((port) => `127.0.0.1:${port}`).join(',')}/postgres`;
    expect(await migrateDatabase(list(replica.port, primary.port), migrationsFolder)).toBe('primary');
    expect(await migrateDatabase(list(1, replica.port), migrationsFolder)).toBe('replica');
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

  describe('that is served', () => {
    let service: Service;
    beforeAll(async () => {
      const config = readConfig({
        PORT: '0',
        METRICS_PORT: '0',
        RATE_LIMIT_PER_SECOND: '0',
        // The service looks once a second, later on a busy machine, and what it sees may count until it looks again.
        MAX_REPLICA_LAG_SECONDS: '3',
        LOG_LEVEL: 'silent',
      });
      service = await startService(config, replica.url, openLog(config));
    });
    afterAll(() => service?.close());

    async function readiness(): Promise<{ status: number; reason: string }> {
      const response = await fetch(`${service.url}/readyz`);
      return { status: response.status, reason: ((await response.json()) as { status: string }).status };
    }

    async function untilStatusIs(
      status: number,
      begin = performance.now(),
    ): Promise<{ reason: string; seconds: number }> {
      for (;;) {
        const found = await readiness();
        const seconds = (performance.now() - begin) / 1000;
        if (found.status === status) return { reason: found.reason, seconds };
        if (seconds > 40) throw new Error(`/readyz stays ${found.status}: ${found.reason}`);
        await sleep(50);
      }
    }

    it('answers pages, and is ready while nobody writes', async () => {
      expect((await fetch(`${service.url}/v1/brandedPhoneNumbers`)).status).toBe(200);
      for (let i = 0; i < 5; i++, await sleep(500)) expect(await readiness()).toEqual({ status: 200, reason: 'ready' });
    });

    it('stays ready while its replay is paused, but only as long as there is nothing to replay', async () => {
      await replayed(async () => {
        const [row] = await onReplica`SELECT pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() AS is`;
        return row?.is;
      });
      // PostgreSQL itself may write at any time, so the lag may begin before the row is written, but not before this.
      const begin = performance.now();
      await onReplica`SELECT pg_wal_replay_pause()`;
      try {
        await sleep(1500);
        expect(await readiness()).toEqual({ status: 200, reason: 'ready' });
        await onPrimary`INSERT INTO written VALUES (now())`;
        const { reason, seconds } = await untilStatusIs(503, begin);
        expect(reason).toMatch(/^the replica is \d+ s behind its primary$/);
        expect(seconds).toBeGreaterThan(2.9);
        const metrics = await (await fetch(`${service.metricsUrl}/metrics`)).text();
        expect(Number(/^database_replica_lag_seconds (.*)$/m.exec(metrics)?.[1])).toBeGreaterThan(0);
      } finally {
        await onReplica`SELECT pg_wal_replay_resume()`;
      }
      await untilStatusIs(200);
    });

    it('is not ready while its primary is gone', async () => {
      await onPrimary.end();
      await primary.stop();
      const { reason } = await untilStatusIs(503);
      expect(reason).toMatch(/^the replica is \d+ s behind its primary$/);
      // Pages are still answered: a client that asks this instance directly prefers old numbers to none.
      expect((await fetch(`${service.url}/v1/brandedPhoneNumbers`)).status).toBe(200);
      await primary.start();
      onPrimary = connectTo(primary.url);
      await untilStatusIs(200);
    });

    it('is ready as soon as it is promoted', async () => {
      await onPrimary.end();
      await primary.stop();
      await untilStatusIs(503);
      await onReplica`SELECT pg_promote(true, 10)`;
      await untilStatusIs(200);
    });
  });
});
