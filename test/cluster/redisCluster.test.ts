/** The limit in a Redis Cluster of three primaries, each with a replica, while parts of it fail. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { openRedisStore } from '../../src/service/rateLimit/redisStore.js';
import { freePort } from '../support/port.js';
import { run } from '../support/programs.js';
import { hasRedis, startRedis, type TestRedis } from '../support/redis.js';
import { makeDataFolder } from '../support/temporaryFolder.js';
import { until } from '../support/until.js';
import { expectSharedAgain, outage, start, useInstances } from './outage.js';

const NODE_TIMEOUT_SECONDS = 2;
const SHARED_AGAIN_SECONDS = NODE_TIMEOUT_SECONDS + 5;

/** The number of slots that move away from the first node, which has 5,461. */
const MOVED_SLOTS = 2000;
/** A node that moved all of them at once would not respond to the instances in time. */
const MOVED_AT_ONCE = 50;

useInstances();

describe.skipIf(!hasRedis)('a limit in a Redis Cluster', () => {
  let nodes: TestRedis[];

  beforeAll(async () => {
    // In memory, since a node writes its file for each slot that moves, and responds to nobody until the disk has it.
    const folder = await makeDataFolder('redis-');
    const operations = await readFile(join(packageFolder, 'docs', 'operations.md'), 'utf8');
    const user = [...operations.matchAll(/^ACL SETUSER limiter (.*)$/gm)].flatMap(([, rights = '']) =>
      rights.split(' '),
    );
    nodes = await Promise.all(
      Array.from({ length: 6 }, async (_, i) =>
        startRedis(
          ...['--cluster-enabled', 'yes', '--cluster-node-timeout', String(NODE_TIMEOUT_SECONDS * 1000)],
          ...['--cluster-port', String(await freePort()), '--cluster-config-file', join(folder, String(i))],
          // On a busy machine, a primary may pause for longer than that; its replica would take over its slots.
          ...['--cluster-replica-no-failover', 'yes'],
          ...['--repl-diskless-sync-delay', '0', '--user', 'limiter', ...user],
          ...['--user', 'unasking', ...user.filter((right) => right !== '+asking')],
        ),
      ),
    );
    const addresses = [...nodes.keys()].map(address);
    await redisCli('--cluster', 'create', ...addresses, '--cluster-replicas', '1', '--cluster-yes');
    const isReady = async (node: number) => (await callNode(node, 'CLUSTER', 'INFO')).includes('cluster_state:ok');
    await until(async () => (await Promise.all([...nodes.keys()].map(isReady))).every(Boolean));
  });
  afterAll(() => Promise.all(nodes.map((node) => node.kill())));
  beforeEach(async () => {
    await start(2, { REDIS_URL: `redis://limiter:password@${address(0)}` });
    await start(1, { REDIS_URL: `redis://limiter:password@${address(1)},${address(0)}` });
  });

  const address = (node: number) => `127.0.0.1:${nodes[node]?.port}`;
  const redisCli = async (...args: string[]) => (await run('redis-cli', args)).stdout;
  const callNode = (node: number, ...command: string[]) => redisCli('-p', String(nodes[node]?.port), ...command);

  /** Tries again for long, since on a busy machine, Redis responds too late to an instance in most tries. */
  const expectShared = (begin?: () => unknown) =>
    until(async () => (await outage(begin)).most === 10, 'at most ten pass in a second', 480_000);

  it('is shared by all instances', () => expectShared());

  it('is shared while slots are moved', async () => {
    const ends = await Promise.all(
      nodes
        .slice(0, 2)
        .map(async ({ port }, i) => ({ client: new Redis(port), id: (await callNode(i, 'CLUSTER', 'MYID')).trim() })),
    );
    const setSlots = async ({ client }: (typeof ends)[0], ...state: string[]) => {
      for (let first = 0; first < MOVED_SLOTS; first += MOVED_AT_ONCE) {
        const slots = Array.from({ length: MOVED_AT_ONCE }, (_, i) => first + i);
        await Promise.all(slots.map((slot) => client.call('CLUSTER', 'SETSLOT', slot, ...state)));
      }
    };
    const unasking = openRedisStore(`redis://unasking:password@${address(0)},${address(1)}`, 10);
    await until(() => unasking.consume('first').then(Boolean, () => false));
    const epochAt = async (node: number) =>
      /^cluster_current_epoch:.*$/m.exec(await callNode(node, 'CLUSTER', 'INFO'))?.[0];
    const nodesAgree = async () =>
      new Set(await Promise.all([...nodes.keys()].map(epochAt))).size === 1 &&
      redisCli('--cluster', 'check', address(0)).then(Boolean, () => false);
    // A retry, as on a busy machine, moves the slots back.
    let [from, to] = ends as [(typeof ends)[0], (typeof ends)[0]];
    await expectShared(async () => {
      await setSlots(to, 'IMPORTING', from.id);
      await setSlots(from, 'MIGRATING', to.id);
      // A store without the right to ASKING fails only while slots move, so slots do move here.
      const counts = Array.from({ length: 30 }, (_, client) => unasking.consume(`${client}`));
      expect((await Promise.allSettled(counts)).map(({ status }) => status)).toContain('rejected');
      // Then all earlier counts have expired.
      await sleep(3000);
      for (const end of [to, from]) await setSlots(end, 'NODE', to.id);
      [from, to] = [to, from];
      // A node that takes slots back before it knows of the epoch in which it lost them would take the same epoch. Of
      // two nodes with one epoch, Redis raises either; if it is the one that gives slots away, it keeps some of them.
      await until(nodesAgree, 'all nodes agree about the slots and epochs', 60_000);
    });
    for (const { client } of ends) client.disconnect();
    await unasking.close();
  });

  describe('is shared again', () => {
    beforeAll(async () => {
      await Promise.all(nodes.map((node) => node.configure('cluster-replica-no-failover', 'no')));
    });

    it('soon after a primary was killed', () =>
      expectSharedAgain('a primary is killed (-9)', SHARED_AGAIN_SECONDS, () => nodes[1]?.kill()));

    it('while a primary hangs, and after it continues', async () => {
      const began = performance.now();
      await expectSharedAgain('a primary hangs', SHARED_AGAIN_SECONDS, () => nodes[2]?.pause());
      await sleep(12_000 - (performance.now() - began));
      await expectSharedAgain('the primary continues', SHARED_AGAIN_SECONDS, () => nodes[2]?.resume());
    });
  });
});
