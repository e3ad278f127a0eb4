/** A cluster with the configuration files of deploy/: its limit, its restarts, and its responses during faults. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { Sql } from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deriveAll } from '../../src/operator/numbers/check.js';
import { packageFolder } from '../../src/packageFolder.js';
import { connectTo } from '../support/connection.js';
import { importDemo } from '../support/demo.js';
import type { PageResponse } from '../support/haproxy.js';
import { mostInASecond } from '../support/timedResponses.js';
import { until } from '../support/until.js';
import { walkWithRetries } from '../support/walkWithRetries.js';
import { type Cluster, type DatabaseServer, missingPackages, startCluster } from './cluster.js';
import { gapOf, sendRequest, type TrafficResult, trafficOf } from './traffic.js';

if (missingPackages.length > 0 && process.env.SKIP_NOTHING) throw new Error(`not installed: ${missingPackages}`);
if (missingPackages.length > 0) console.warn(`skipping the cluster: not installed: ${missingPackages.join(', ')}`);

interface Fault {
  /** What happens; "its" refers to the primary. */
  name: string;
  /** The role of the server that has the fault; by default, primary. */
  role?: string;
  begin(server: DatabaseServer): Promise<unknown>;
  repair?(server: DatabaseServer): void;
}

describe.skipIf(missingPackages.length > 0)('a cluster', () => {
  let cluster: Cluster;
  let lines: string[];
  let numbers: string[];

  beforeAll(async () => {
    cluster = await startCluster();
    lines = (await readFile(join(packageFolder, 'demo', 'numbers.ndjson'), 'utf8')).trimEnd().split('\n');
    numbers = lines.map((line) => JSON.parse(line).phoneNumber).sort();
    await importDemo(cluster.databaseUrl);
    await until(
      async () => (await sendRequest(cluster, '?size=1', 249)).body.includes(numbers[0] ?? '-'),
      'the replicas have the numbers',
    );
  });
  afterAll(() => cluster?.stop());

  it('never lets more than ten requests of a client pass in a second', async () => {
    const responses: ReturnType<typeof sendRequest>[] = [];
    for (const end = performance.now() + 4000; performance.now() < end; await sleep(8))
      responses.push(sendRequest(cluster, ''));
    const outcomes = await Promise.all(responses);
    expect(mostInASecond(outcomes)).toBeLessThanOrEqual(10);
    // 40 on an idle machine.
    expect(outcomes.filter(({ status }) => status === 200).length).toBeGreaterThanOrEqual(30);
  });

  it('fails no request and skips no number during a rolling restart', async () => {
    const failures: PageResponse[] = [];
    let isOver = false;
    const restarted = cluster.restartInstances().finally(() => {
      isOver = true;
    });
    for (let walks = 0; !isOver || walks < 2; walks++) {
      const items = await walkWithRetries((search) => sendRequest(cluster, search, 1), failures, 120);
      expect(items.map(({ phoneNumber }) => phoneNumber)).toEqual(numbers);
    }
    await restarted;
    expect(failures).toEqual([]);
  });

  describe('for a stranger who reaches its ports', () => {
    const login = (port: string) => connectTo(`postgres://postgres:guessed@${port}/postgres`)`SELECT`;
    const statusOf = (port: string, path: string, method = 'GET', body?: string) =>
      fetch(`http://${cluster.network}.${port}${path}`, { method, ...(body && { body }) }).then(({ status }) => status);
    /** For each row of the manual's table, what a stranger tries. */
    const attempts: Record<string, () => Promise<void>> = {
      '443': async () => expect((await sendRequest(cluster, '?size=1')).status).toBe(200),
      '3000 (`PORT`)': async () => expect(await statusOf('1.1:3000', '/v1/brandedPhoneNumbers?size=1')).toBe(200),
      '9464 (`METRICS_PORT`)': async () => {
        expect([await statusOf('1.1:9464', '/metrics'), await statusOf('1.1:9464', '/metrics', 'POST')]).toEqual([
          200, 404,
        ]);
      },
      '5432': () => expect(login(`${cluster.network}.2.1:5432`)).rejects.toMatchObject({ code: '28P01' }),
      '8008': async () => {
        const changes: [string, string][] = [
          ...['/config', '/restart', '/reload', '/switchover', '/failover', '/reinitialize', '/sigterm'].map(
            (path): [string, string] => ['POST', path],
          ),
          ...['PATCH', 'PUT'].map((method): [string, string] => [method, '/config']),
          ...['/restart', '/switchover'].map((path): [string, string] => ['DELETE', path]),
        ];
        const statuses = changes.map(([method, path]) => statusOf('2.1:8008', path, method, '{}'));
        // 501: there is no such request, or not in this version of Patroni.
        expect(new Set(await Promise.all(statuses))).toEqual(new Set([401, 501]));
        expect(await statusOf('2.1:8008', '/config', 'PATCH', '{}')).toBe(401);
        expect(await statusOf('2.1:8008', '/cluster')).toBe(200);
      },
      '2379, 2380': async () => {
        const key = Buffer.from('/service/numbers/config').toString('base64');
        expect(await statusOf('3.1:2379', '/v3/kv/range', 'POST', JSON.stringify({ key }))).toBe(200);
      },
      '6379': async () => {
        const redis = new Redis(`redis://${cluster.network}.0.2:6379`, { lazyConnect: true });
        expect(await redis.dbsize()).toBeGreaterThanOrEqual(0);
        redis.disconnect();
      },
      '5432, 5433, 6432': async () => {
        for (const port of [5432, 5433, 6432]) {
          await expect(login(`${cluster.network}.0.1:${port}`)).rejects.toMatchObject({
            code: expect.stringMatching(/^(28P01|08P01)$/),
          });
        }
        const read = (file: string) => readFile(join(packageFolder, 'deploy', file), 'utf8');
        expect(await read('haproxy/haproxy.cfg')).toMatch(/bind 127\.0\.0\.1:5432\n[\s\S]*bind 127\.0\.0\.1:5433\n/);
        expect(await read('pgbouncer/pgbouncer.ini')).toMatch(/^listen_addr = 127\.0\.0\.1$/m);
      },
    };

    it('the manual lists each port', async () => {
      const manual = await readFile(join(packageFolder, 'docs', 'operations.md'), 'utf8');
      const [table = ''] = /^\| Port \|[\s\S]*?\n\n/m.exec(manual) ?? [];
      expect([...table.matchAll(/^\| ([^|]*\d[^|]*) \|/gm)].map(([, port]) => port).sort()).toEqual(
        Object.keys(attempts).toSorted(),
      );
    });

    it.each(Object.keys(attempts))('port %s does what the manual says', (port) => attempts[port]?.());
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

    /** Returns when a server other than `old` became the primary, as performance.now(). */
    async function promotionAfter(old: DatabaseServer): Promise<number> {
      let at = Number.NaN;
      const isPromoted = async (sql: Sql) => {
        const [row] = await sql`SELECT NOT pg_is_in_recovery() AS is`.catch(() => []);
        if (row?.is) at = performance.now();
        return !Number.isNaN(at);
      };
      const candidates = cluster.servers
        .filter((server) => server !== old)
        .map(({ url }) => connectTo(url, { connect_timeout: 1 }));
      await Promise.any(candidates.map((sql) => until(() => isPromoted(sql), 'another server is promoted', 60_000)));
      await Promise.all(candidates.map((sql) => sql.end({ timeout: 0 })));
      return at;
    }

    /** Runs the traffic before, during and after a fault. */
    async function survive({ name, role = 'primary', begin: beginFault, repair }: Fault): Promise<void> {
      await cluster.hasTwoReplicas();
      const server = cluster.servers[(await Promise.all(cluster.servers.map((each) => each.is(role)))).indexOf(true)];
      if (!server) throw new Error(`no server is ${role}`);
      let begin = 0;
      let promotion = Number.NaN;
      const results = await traffic.during(async () => {
        await sleep(1500);
        begin = performance.now();
        const promoted = role === 'primary' ? promotionAfter(server) : undefined;
        await beginFault(server);
        promotion = (await promoted) ?? Number.NaN;
        await sleep(3000);
        repair?.(server);
        await sleep(3000);
      });
      const failed = ({ operations }: TrafficResult) => operations.filter(({ succeeded }) => !succeeded).length;
      const gap = (result: TrafficResult) => `${gapOf(result).toFixed(1)} s`;
      const { anyServer, primary } = results;
      const recovered = Math.min(
        ...primary.operations
          .filter(({ succeeded, sentAt }) => succeeded && sentAt > promotion)
          .map(({ endedAt }) => endedAt),
      );
      const afterPromotion = (recovered - promotion) / 1000;
      const seconds = (value: number) => (Number.isFinite(value) ? `${value.toFixed(1)} s` : '–');
      rows.push(
        `| ${name} | ${seconds((promotion - begin) / 1000)} | ${anyServer.operations.length}, ${failed(anyServer)}, ${gap(anyServer)} | ${failed(primary)}, ${gap(primary)}, ${seconds(afterPromotion)} | ${gap(results.writes)} | ${gap(results.imports)} |`,
      );
      console.log(rows.at(-1));
      expect({ wrong: [...anyServer.wrong, ...primary.wrong], lost: await traffic.lost() }).toEqual({
        wrong: [],
        lost: [],
      });
      expect(gapOf(anyServer)).toBeLessThan(2.5);
      if (role === 'primary') expect(afterPromotion).toBeLessThan(2);
      // Writes and imports succeed again at the end.
      for (const result of [results.writes, results.imports]) expect(result.operations.at(-1)?.succeeded).toBe(true);
    }

    const kill = async (server: DatabaseServer) => {
      await server.killPatroni();
      server.signalPostgres('SIGKILL');
    };
    const repair = (server: DatabaseServer) => server.startPatroni();
    const faults: Fault[] = [
      { name: '`patronictl switchover`', begin: () => cluster.patronictl('switchover', '--force') },
      { name: 'its PostgreSQL is killed (-9)', begin: async (server) => server.signalPostgres('SIGKILL') },
      { name: 'its PostgreSQL and Patroni are killed (-9)', begin: kill, repair },
      { name: 'its Patroni alone is killed (-9)', begin: (server) => server.killPatroni(), repair },
      {
        name: 'its PostgreSQL is stopped (SIGSTOP); the watchdog resets the machine after 15 s',
        async begin(server) {
          server.signalPostgres('SIGSTOP');
          // A real watchdog would reset the machine that runs the test.
          await sleep(15_000);
          await kill(server);
        },
        repair,
      },
      {
        name: 'the synchronous replica is killed (-9) instead',
        role: 'sync',
        begin: async (server) => server.signalPostgres('SIGKILL'),
      },
    ];
    it.each(faults)('loses nothing in a fault of the primary: $name', survive);

    it('has a read model that `check` finds consistent afterwards', async () => {
      expect(await deriveAll(cluster.databaseUrl, { keep: false })).toEqual([]);
    });
  });
});
