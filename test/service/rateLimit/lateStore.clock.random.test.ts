/** Two instances share a limit in a store that is late, hangs, crashes or loses its data at random times. */
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, inject, it } from 'vitest';
import { openLog } from '../../../src/log.js';
import { createMetrics } from '../../../src/metrics.js';
import { RateLimiter } from '../../../src/service/rateLimit/limiter.js';
import { mostInASecond } from '../../support/mostInASecond.js';
import { hasRedis } from '../../support/redis.js';
import { freshSeed } from '../../support/seed.js';
import { openToxicProxy } from '../../support/toxicProxy.js';
import { startStoreServer } from './storeServer.js';

const LIMIT = 10;
const INSTANCES = 2;
/** Allows for differences between the instances' estimates of the store's clock, and for inexact timers. */
const MARGIN_MS = 100;
const FAULTS = inject('tries') === 1 ? 8 : 60;

const fault = fc.record({
  kind: fc.constantFrom('slow', 'slow', 'frozen', 'frozen', 'silent', 'refusing', 'cleared', 'killed', 'killed'),
  instance: fc.nat({ max: INSTANCES - 1 }),
  slowerByMs: fc.integer({ min: 20, max: 400 }),
  lastsMs: fc.oneof(fc.integer({ min: 20, max: 400 }), fc.integer({ min: 400, max: 2500 })),
  thenMs: fc.oneof(fc.integer({ min: 0, max: 300 }), fc.integer({ min: 300, max: 1500 })),
});

// Concurrent, because they mostly wait.
describe.concurrent.each(hasRedis ? ['Redis', 'PostgreSQL'] : ['PostgreSQL'])(
  'a rate limit with a store in %s that keeps failing',
  (kind) => {
    const seed = freshSeed();

    it('refuses no client within the limit, and allows any other at most the limit per instance', async ({
      expect,
      onTestFinished,
    }) => {
      const server = await startStoreServer(kind, LIMIT, onTestFinished);
      const instances = await Promise.all(
        Array.from({ length: INSTANCES }, async () => {
          const proxy = await openToxicProxy(server.port);
          const metrics = createMetrics(1);
          const limiter = new RateLimiter(server.open(proxy.port), LIMIT, openLog({ LOG_LEVEL: 'silent' }), metrics);
          onTestFinished(async () => {
            await limiter.close();
            await proxy.close();
          });
          await limiter.warmUp();
          // Each count improves an instance's estimate of the store's clock.
          for (let i = 0; i < 20; i++) await limiter.count(`first ${i}`).decision;
          return { proxy, limiter, metrics };
        }),
      );
      /** Returns the number of store errors of each instance. */
      const storeErrors = async () => {
        const texts = await Promise.all(instances.map(({ metrics }) => metrics.text()));
        return texts.map((text) => /^rate_limit_store_errors_total (\d+)$/m.exec(text)?.[1]).join();
      };
      const choices = fc.sample(fc.nat({ max: 999 }), { seed, numRuns: 10_000 });
      const choose = (i: number) => choices[i % choices.length] ?? 0;
      const begin = performance.now();
      const events: string[] = [];
      const note = (text: string) => events.push(`${Math.round(performance.now() - begin)} ${text}`);
      let isOver = false;

      async function send(client: string, i: number) {
        const sent = performance.now();
        const { allowed } = await (instances[i % INSTANCES] as (typeof instances)[0]).limiter.count(client).decision;
        if (!allowed && client !== 'over')
          note(`${client}, sent at ${Math.round(sent - begin)} to ${i % INSTANCES}: refused`);
        return { sent, came: performance.now(), status: allowed ? 200 : 429 };
      }
      type Response = Awaited<ReturnType<typeof send>>;

      /** Sends requests singly or in bursts, at most LIMIT in any second. */
      async function keepWithin(client: string, offset: number): Promise<Response[]> {
        const responses: Promise<Response>[] = [];
        const sent: number[] = [];
        for (let i = offset; !isOver; i++) {
          const due = (sent.at(-LIMIT) ?? 0) + 1000 + MARGIN_MS - performance.now();
          if (due > 0) await sleep(due);
          else if (choose(i) < 300) await sleep(choose(i));
          else {
            sent.push(performance.now());
            responses.push(send(client, choose(i)));
          }
        }
        return Promise.all(responses);
      }
      async function sendEvery(ms: number, client: string, chooseInstance = choose): Promise<Response[]> {
        const responses: Promise<Response>[] = [];
        for (let i = 0; !isOver; i++) {
          responses.push(send(client, chooseInstance(i)));
          await sleep(ms);
        }
        return Promise.all(responses);
      }

      const within = [
        sendEvery(115, 'steady', (i) => i),
        ...[0, 3000, 6000].map((offset) => keepWithin(`within ${offset}`, offset)),
      ];
      const over = sendEvery(12, 'over');
      await sleep(1500);
      for (const { kind, instance, slowerByMs, lastsMs, thenMs } of fc.sample(fault, { seed, numRuns: FAULTS })) {
        const { proxy } = instances[instance] as (typeof instances)[0];
        note(`${kind} for ${lastsMs} ms (${instance})`);
        if (kind === 'cleared') await server.clear();
        else if (kind === 'killed') {
          await server.kill();
          await sleep(lastsMs);
          await server.start();
        } else if (kind === 'frozen') {
          await server.freeze();
          await sleep(lastsMs);
          await server.thaw();
        } else {
          proxy.behave(kind, slowerByMs);
          await sleep(lastsMs);
          // A connection that has lost bytes can't be used any more.
          if (kind === 'silent') proxy.forgetConnections();
          proxy.behave('passing');
        }
        note('passing');
        await sleep(thenMs);
      }
      // If a busy machine makes the store late again, the limit is not shared for a second, so this waits longer.
      let sharedSince = 0;
      for (let [attempt, before] = [0, '']; before !== (await storeErrors()) && attempt < 10; attempt++) {
        await sleep(1500);
        sharedSince = performance.now();
        before = await storeErrors();
        await sleep(2500);
      }
      isOver = true;
      for (const responses of await Promise.all(within)) {
        const refused = responses.filter(({ status }) => status === 429).length;
        expect([refused, mostInASecond(responses) <= LIMIT], events.join('\n')).toEqual([0, true]);
      }
      const most = mostInASecond(await over);
      console.log(`${kind}: ${(await over).length} requests, at most ${most} passed in a second`);
      expect(most, events.join('\n')).toBeLessThanOrEqual(INSTANCES * LIMIT);
      expect(mostInASecond((await over).filter(({ sent }) => sent >= sharedSince))).toBeLessThanOrEqual(LIMIT);
    }, 300_000);
  },
);
