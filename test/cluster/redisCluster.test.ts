/** A Redis Cluster of three primaries, each with a replica, as the limit's store: what passes while parts of it fail. */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { openRedisStore } from '../../src/service/rateLimit/redisStore.js';
import { start, useInstances } from '../support/limitedInstances.js';
import { freePort } from '../support/port.js';
import { hasRedis, startRedis, type TestRedis } from '../support/redis.js';
import { until } from '../support/until.js';
import { expectSharedAgain, outage } from './outage.js';

const NODE_TIMEOUT_SECONDS = 2;
const SHARED_AGAIN_SECONDS = NODE_TIMEOUT_SECONDS + 5;

/** Of the first node, which has 5,461. */
const MOVED_SLOTS = 4000;

useInstances();

describe.skipIf(!hasRedis)('a Redis Cluster', () => {
  let folder: string;
  let nodes: TestRedis[];

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-redis-'));
    const operations = await readFile(join(packageFolder, 'docs', 'operations.md'), 'utf8');
    const user = [...operations.matchAll(/^ACL SETUSER limiter (.*)$/gm)].flatMap(([, rights = '']) =>
      rights.split(' '),
    );
    nodes = await Promise.all(
      Array.from({ length: 6 }, async (_, i) =>
        startRedis(
          ...['--cluster-enabled', 'yes', '--cluster-node-timeout', String(NODE_TIMEOUT_SECONDS * 1000)],
          ...['--cluster-port', String(await freePort()), '--cluster-config-file', join(folder, String(i))],
          // A busy machine may keep a primary waiting for longer than that; its replica would take its slots over.
          ...['--cluster-replica-no-failover', 'yes'],
          ...['--repl-diskless-sync-delay', '0', '--user', 'limiter', ...user],
          ...['--user', 'unasking', ...user.filter((right) => right !== '+asking')],
        ),
      ),
    );
    const addresses = [...nodes.keys()].map(address);
    await redisCli('--cluster', 'create', ...addresses, '--cluster-replicas', '1', '--cluster-yes');
    const isReady = async (node: number) => (await ask(node, 'CLUSTER', 'INFO')).includes('cluster_state:ok');
    await until(async () => (await Promise.all([...nodes.keys()].map(isReady))).every(Boolean));
  });
  afterAll(async () => {
    await Promise.all(nodes.map((node) => node.kill()));
    await rm(folder, { recursive: true });
  });
  beforeEach(async () => {
    await start(2, { REDIS_URL: `redis://limiter:password@${address(0)}` });
    await start(1, { REDIS_URL: `redis://limiter:password@${address(1)},${address(0)}` });
  });

  const address = (node: number) => `127.0.0.1:${nodes[node]?.port}`;
  const redisCli = async (...args: string[]) => (await promisify(execFile)('redis-cli', args)).stdout;
  const ask = (node: number, ...command: string[]) => redisCli('-p', String(nodes[node]?.port), ...command);

  const isNeverOver = (begin?: () => unknown) =>
    until(async () => (await outage(begin)).most === 10, 'ten pass where Redis responds in time', 100_000);

  it('is shared by all instances: never more than ten pass in a second', () => isNeverOver());

  it('is shared while slots are moved', async () => {
    const ends = await Promise.all(
      nodes
        .slice(0, 2)
        .map(async ({ port }, i) => ({ client: new Redis(port), id: (await ask(i, 'CLUSTER', 'MYID')).trim() })),
    );
    const setSlots = ({ client }: (typeof ends)[0], ...state: string[]) =>
      Promise.all(Array.from({ length: MOVED_SLOTS }, (_, slot) => client.call('CLUSTER', 'SETSLOT', slot, ...state)));
    const unasking = openRedisStore(`redis://unasking:password@${address(0)},${address(1)}`, 10);
    await until(() => unasking.consume('first', performance.now()).then(Boolean, () => false));
    // And back, where a busy machine made it try again.
    let [from, to] = ends as [(typeof ends)[0], (typeof ends)[0]];
    await isNeverOver(async () => {
      await setSlots(to, 'IMPORTING', from.id);
      await setSlots(from, 'MIGRATING', to.id);
      // Where ASKING fails, so does the count, but nothing else.
      const counts = Array.from({ length: 30 }, (_, client) => unasking.consume(`${client}`, performance.now()));
      expect((await Promise.allSettled(counts)).map(({ status }) => status)).toContain('rejected');
      // What was counted before is forgotten by then.
      await sleep(3000);
      for (const end of [to, from]) await setSlots(end, 'NODE', to.id);
      [from, to] = [to, from];
    });
    for (const { client } of ends) client.disconnect();
    await unasking.close();
  });

  describe('is shared again', () => {
    beforeAll(async () => {
      await Promise.all(
        [...nodes.keys()].map((node) => ask(node, 'CONFIG', 'SET', 'cluster-replica-no-failover', 'no')),
      );
    });

    it('soon after a primary was killed', () =>
      expectSharedAgain('a primary is killed (-9)', SHARED_AGAIN_SECONDS, () => nodes[1]?.kill()));

    it('while a primary hangs, and stays so when it goes on', async () => {
      const began = performance.now();
      await expectSharedAgain('a primary hangs', SHARED_AGAIN_SECONDS, () => nodes[2]?.pause());
      await sleep(12_000 - (performance.now() - began));
      await expectSharedAgain('and goes on', SHARED_AGAIN_SECONDS, () => nodes[2]?.resume());
    });
  });
});
