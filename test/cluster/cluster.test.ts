/** What holds on a cluster made of deploy/'s files: the limit, exact walks through restarts, and right responses through faults. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { deriveAll } from '../../src/operator/numbers/check.js';
import { importNumbers } from '../../src/operator/numbers/import.js';
import { packageFolder } from '../../src/packageFolder.js';
import { connectTo } from '../support/connection.js';
import { until } from '../support/until.js';
import { type Cluster, type DatabaseServer, missingPackages, startCluster } from './cluster.js';
import { ask, type Course, gapOf, trafficOf } from './traffic.js';

if (missingPackages.length > 0 && process.env.SKIP_NOTHING) throw new Error(`not installed: ${missingPackages}`);
if (missingPackages.length > 0) console.warn(`skipped: the cluster needs ${missingPackages.join(', ')}`);

/** CI machines are shared, and the times are those of what was measured on a quiet one. */
const retry = process.env.CI ? 1 : 0;

describe.skipIf(missingPackages.length > 0)('a cluster', () => {
  let cluster: Cluster;
  let lines: string[];
  let numbers: string[];

  beforeAll(async () => {
    cluster = await startCluster();
    lines = (await readFile(join(packageFolder, 'demo', 'numbers.ndjson'), 'utf8')).trimEnd().split('\n');
    numbers = lines.map((line) => JSON.parse(line).phoneNumber).sort();
    const database = openDatabase(cluster.databaseUrl);
    await importNumbers(database, Readable.from(lines.map((line) => `${line}\n`)));
    await closeDatabase(database);
    await until(
      async () => (await ask(cluster, '?size=1', 249)).body.includes(numbers[0] ?? '-'),
      'the replicas have it',
    );
  });
  afterAll(() => cluster?.stop());

  /** All of the numbers, fifteen a page, at the pace that the limit allows. What is refused is asked for again. */
  async function walk(failures: number[]): Promise<string[]> {
    const seen: string[] = [];
    for (let cursor: string | null = ''; cursor !== null; ) {
      const { status, body } = await ask(cluster, `?size=15${cursor ? `&nextCursor=${cursor}` : ''}`, 1);
      if (status === 200) {
        const page = JSON.parse(body) as { items: { phoneNumber: string }[]; nextCursor: string | null };
        seen.push(...page.items.map(({ phoneNumber }) => phoneNumber));
        cursor = page.nextCursor;
      } else if (status !== 429) failures.push(status);
      await sleep(120);
    }
    return seen;
  }

  it('never lets more than ten through in a second', async () => {
    const responses: ReturnType<typeof ask>[] = [];
    for (const end = performance.now() + 4000; performance.now() < end; await sleep(8))
      responses.push(ask(cluster, ''));
    const passed = (await Promise.all(responses)).filter(({ status }) => status === 200);
    const inSecondAfter = ({ came }: { came: number }) =>
      passed.filter((other) => other.sent >= came && other.came < came + 1000);
    expect(Math.max(...passed.map((each) => inSecondAfter(each).length))).toBeLessThanOrEqual(10);
    // Forty, unless a busy machine delays some.
    expect(passed.length).toBeGreaterThanOrEqual(30);
  });

  it('fails no request in a rolling restart, and every walk is exact', async () => {
    const failures: number[] = [];
    let isOver = false;
    const restarted = cluster.restartInstances().finally(() => {
      isOver = true;
    });
    for (let walks = 0; !isOver || walks < 2; walks++) expect(await walk(failures)).toEqual(numbers);
    await restarted;
    expect(failures).toEqual([]);
  });

  describe('under load', () => {
    let traffic: Awaited<ReturnType<typeof trafficOf>>;
    const rows: string[] = [];
    beforeAll(async () => {
      traffic = await trafficOf(cluster, lines);
    });
    afterAll(async () => {
      await traffic?.end();
      console.log(
        `| Fault | Promoted after | Any server, limit in Redis: requests, failed, longest gap | Primary, limit in PostgreSQL: failed, longest gap, 200 after promotion | Writes: longest gap | Imports and keys: longest gap |\n|---|---:|---:|---:|---:|---:|\n${rows.join('\n')}`,
      );
    });

    /** When another server has become the primary. */
    async function promotionAfter(old: DatabaseServer): Promise<number> {
      let at = Number.NaN;
      const isPromoted = async (sql: Sql) => {
        const [row] = await sql`SELECT NOT pg_is_in_recovery() AS is`.catch(() => []);
        if (row?.is) at = performance.now();
        return !Number.isNaN(at);
      };
      const others = cluster.servers
        .filter((server) => server !== old)
        .map(({ url }) => connectTo(url, { connect_timeout: 1 }));
      await Promise.any(others.map((sql) => until(() => isPromoted(sql), 'another server is promoted', 60_000)));
      await Promise.all(others.map((sql) => sql.end({ timeout: 0 })));
      return at;
    }

    /** Runs the traffic through a fault of the primary, or of a replica, and a while after it. */
    async function through(
      name: string,
      fault: (server: DatabaseServer) => Promise<unknown>,
      { of = 'primary', repair = () => {} }: { of?: string; repair?(server: DatabaseServer): void } = {},
    ): Promise<void> {
      await cluster.hasTwoReplicas();
      const server = cluster.servers[(await Promise.all(cluster.servers.map((each) => each.is(of)))).indexOf(true)];
      if (!server) throw new Error(`no server is ${of}`);
      let begin = 0;
      let promotion = Number.NaN;
      const courses = await traffic.during(async () => {
        await sleep(1500);
        begin = performance.now();
        const promoted = of === 'primary' ? promotionAfter(server) : undefined;
        await fault(server);
        promotion = (await promoted) ?? Number.NaN;
        await sleep(3000);
        repair(server);
        await sleep(3000);
      });
      const failed = ({ deeds }: Course) => deeds.filter(({ isDone }) => !isDone).length;
      const gap = (course: Course) => `${gapOf(course).toFixed(1)} s`;
      const { anyServer, primary } = courses;
      const again = Math.min(
        ...primary.deeds.filter(({ isDone, sent }) => isDone && sent > promotion).map(({ came }) => came),
      );
      const afterPromotion = (again - promotion) / 1000;
      const is = (value: number) => (Number.isFinite(value) ? `${value.toFixed(1)} s` : '–');
      rows.push(
        `| ${name} | ${is((promotion - begin) / 1000)} | ${anyServer.deeds.length}, ${failed(anyServer)}, ${gap(anyServer)} | ${failed(primary)}, ${gap(primary)}, ${is(afterPromotion)} | ${gap(courses.writes)} | ${gap(courses.imports)} |`,
      );
      console.log(rows.at(-1));
      expect({ wrong: [...anyServer.wrong, ...primary.wrong], lost: await traffic.lost() }).toEqual({
        wrong: [],
        lost: [],
      });
      expect(gapOf(anyServer)).toBeLessThan(2.5);
      if (of === 'primary') expect(afterPromotion).toBeLessThan(2);
      // Both have succeeded again.
      for (const course of [courses.writes, courses.imports]) expect(course.deeds.at(-1)?.isDone).toBe(true);
    }

    const kill = async (server: DatabaseServer) => {
      await server.killPatroni();
      server.signalPostgres('SIGKILL');
    };
    const startAgain = { repair: (server: DatabaseServer) => server.startPatroni() };

    it('goes on through a switchover', { retry }, () =>
      through('`patronictl switchover`', () => cluster.patronictl('switchover', '--force')),
    );

    it('goes on when the primary’s PostgreSQL is killed', { retry }, () =>
      through('its PostgreSQL is killed (-9)', async (server) => server.signalPostgres('SIGKILL')),
    );

    it('goes on when the primary and its Patroni are killed', { retry }, () =>
      through('its PostgreSQL and Patroni are killed (-9)', kill, startAgain),
    );

    it('goes on when the primary’s Patroni is killed alone', { retry }, () =>
      through('its Patroni alone is killed (-9)', (server) => server.killPatroni(), startAgain),
    );

    it('goes on when the primary’s PostgreSQL is stopped, until the watchdog resets the machine', { retry }, () =>
      through(
        'its PostgreSQL is stopped (SIGSTOP); the watchdog resets the machine after 15 s',
        async (server) => {
          server.signalPostgres('SIGSTOP');
          // A real one would reset the machine that runs the test.
          await sleep(15_000);
          await kill(server);
        },
        startAgain,
      ),
    );

    it('goes on when the replica that commits wait for is killed', { retry }, () =>
      through('the synchronous replica is killed (-9)', async (server) => server.signalPostgres('SIGKILL'), {
        of: 'sync',
      }),
    );

    it('ends with nothing that `check` would repair', async () => {
      const database = openDatabase(cluster.databaseUrl);
      expect(await deriveAll(database, { keep: false })).toEqual([]);
      await closeDatabase(database);
    });
  });
});
