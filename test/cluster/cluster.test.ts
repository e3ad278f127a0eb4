/** What holds through HAProxy over three instances: the limit, and exact walks through restarts and a failover. */
import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { importNumbers } from '../../src/numbers/import.js';
import { packageFolder } from '../../src/packageFolder.js';
import { connectTo } from '../connection.js';
import { withinASecond } from '../until.js';
import { type Cluster, missingPrograms, startCluster } from './cluster.js';

const PATH = '/v1/brandedPhoneNumbers';
if (missingPrograms.length > 0 && process.env.SKIP_NOTHING) throw new Error(`not installed: ${missingPrograms}`);
if (missingPrograms.length > 0) console.warn(`skipped: the cluster needs ${missingPrograms.join(', ')}`);

describe.skipIf(missingPrograms.length > 0)('a cluster', () => {
  let cluster: Cluster;
  let numbers: string[];

  beforeAll(async () => {
    cluster = await startCluster();
    const database = openDatabase(cluster.primary.url);
    await importNumbers(database, createReadStream(join(packageFolder, 'demo', 'numbers.ndjson')));
    numbers = (
      await database.$client`SELECT phone_number FROM branded_phone_numbers ORDER BY phone_number COLLATE "C"`
    ).map((row) => row.phone_number);
    await closeDatabase(database);
    await sleep(500);
  });
  afterAll(() => cluster?.stop());

  interface Answer {
    status: number;
    sent: number;
    came: number;
    body: { items: { phoneNumber: string }[]; nextCursor: string | null };
  }

  async function ask(search = ''): Promise<Answer> {
    const sent = performance.now();
    const response = await fetch(`${cluster.url}${PATH}${search}`);
    // While no instance is ready, HAProxy itself answers with 503, in HTML.
    const isOurs = response.headers.get('content-type')?.includes('json');
    const body = (isOurs ? await response.json() : { items: [], nextCursor: null }) as Answer['body'];
    return { status: response.status, sent, came: performance.now(), body };
  }

  /** All of the numbers, fifteen a page, at the pace that the limit allows. What is refused is asked for again. */
  async function walk(failures: number[]): Promise<string[]> {
    const seen: string[] = [];
    for (let cursor: string | null = ''; cursor !== null; ) {
      const { status, body } = await ask(`?size=15${cursor ? `&nextCursor=${cursor}` : ''}`);
      if (status === 200) {
        seen.push(...body.items.map(({ phoneNumber }) => phoneNumber));
        cursor = body.nextCursor;
      } else if (status !== 429) failures.push(status);
      await sleep(120);
    }
    return seen;
  }

  async function walkWhile(action: () => Promise<unknown>): Promise<{ walks: string[][]; failures: number[] }> {
    const walks: string[][] = [];
    const failures: number[] = [];
    let isOver = false;
    const done = action().finally(() => {
      isOver = true;
    });
    while (!isOver) walks.push(await walk(failures));
    await done;
    return { walks, failures };
  }

  it('lets exactly ten of fifty at once through, and never more than ten in a second', async () => {
    await sleep(1100);
    const burst = await withinASecond(() => Promise.all(Array.from({ length: 50 }, () => ask())));
    expect(burst.filter(({ status }) => status === 200)).toHaveLength(10);
    expect(burst.filter(({ status }) => status === 429)).toHaveLength(40);
    const answers: Promise<Answer>[] = [];
    for (const end = performance.now() + 4000; performance.now() < end; await sleep(8)) answers.push(ask());
    const passed = [...burst, ...(await Promise.all(answers))].filter(({ status }) => status === 200);
    const inSecondAfter = ({ came }: Answer) =>
      passed.filter((other) => other.sent >= came && other.came < came + 1000);
    expect(Math.max(...passed.map((each) => inSecondAfter(each).length))).toBeLessThanOrEqual(10);
    // Fifty, unless a busy machine delays some.
    expect(passed.length).toBeGreaterThanOrEqual(30);
  });

  it('counts a client as one, whatever X-Forwarded-For it sends', async () => {
    await sleep(1100);
    const forged = (i: number) => fetch(`${cluster.url}${PATH}`, { headers: { 'X-Forwarded-For': `203.0.113.${i}` } });
    const answers = await withinASecond(() => Promise.all(Array.from({ length: 30 }, (_, i) => forged(i))));
    const statuses = answers.map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(10);
  });

  it('lists every number exactly once in a walk over all instances', async () => {
    await sleep(1100);
    const failures: number[] = [];
    expect(await walk(failures)).toEqual(numbers);
    expect(failures).toEqual([]);
  });

  it('fails no request in a rolling restart, and every walk is exact', async () => {
    const { walks, failures } = await walkWhile(() => cluster.restartInstances());
    expect(failures).toEqual([]);
    expect(walks.length).toBeGreaterThanOrEqual(2);
    for (const seen of walks) expect(seen).toEqual(numbers);
  });

  it('reads from the replica once the primary is gone, and every walk is exact', async () => {
    const { walks, failures } = await walkWhile(async () => {
      await sleep(1000);
      await cluster.primary.stop('SIGKILL');
      await sleep(4000);
      const replica = connectTo(cluster.replicas[0].url);
      await replica`SELECT pg_promote(true, 10)`;
      await replica.end();
      await sleep(2000);
    });
    for (const seen of walks) expect(seen).toEqual(numbers);
    expect(failures.filter((status) => status !== 503)).toEqual([]);
    console.log(`failover: ${walks.length} walks, ${failures.length} requests answered with 503`);
    expect(failures.length).toBeLessThanOrEqual(10);
    await sleep(1100);
    expect((await ask()).status).toBe(200);
    for (const url of cluster.instanceUrls) expect((await fetch(`${url}/readyz`)).status).toBe(200);
  });
});
