/** A store that is late, hangs, fails or comes back empty at random times, under two instances that share a limit in it. */
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, inject, it, type TestContext } from 'vitest';
import { openLog } from '../../../src/log.js';
import { createMetrics } from '../../../src/metrics.js';
import { type LimitStore, RateLimiter } from '../../../src/service/rateLimit/limiter.js';
import { openPostgresStore } from '../../../src/service/rateLimit/postgresStore.js';
import { openRedisStore } from '../../../src/service/rateLimit/redisStore.js';
import { connectTo } from '../../support/connection.js';
import { createDatabase } from '../../support/database.js';
import { mostInASecond } from '../../support/mostInASecond.js';
import { hasRedis, startRedis } from '../../support/redis.js';
import { freshSeed } from '../../support/seed.js';
import { openToxicProxy } from '../../support/toxicProxy.js';

const LIMIT = 10;
const INSTANCES = 2;
/** How far the instances may differ in what they take for the store's time, and timers for a second. */
const MARGIN_MS = 100;
const FAULTS = inject('tries') === 1 ? 8 : 60;

/** A server of the store, and the faults that can happen to it. */
interface Server {
  port: number;
  open(port: number): LimitStore;
  /** Stops it where it is, so that it works off later what it is sent meanwhile. */
  freeze(): unknown;
  thaw(): unknown;
  empty(): Promise<unknown>;
}

async function startServer(kind: string, onTestFinished: TestContext['onTestFinished']): Promise<Server> {
  if (kind === 'Redis') {
    const redis = await startRedis();
    onTestFinished(() => redis.kill());
    return {
      port: redis.port,
      open: (port) => openRedisStore(`redis://127.0.0.1:${port}`, LIMIT),
      freeze: () => redis.pause(),
      thaw: () => redis.resume(),
      async empty() {
        await redis.kill();
        await redis.start();
      },
    };
  }
  const { url, drop } = await createDatabase();
  onTestFinished(drop);
  const sql = connectTo(url);
  onTestFinished(() => sql.end());
  let frozen: number[] = [];
  const thaw = () => {
    for (const pid of frozen.splice(0)) process.kill(pid, 'SIGCONT');
  };
  onTestFinished(thaw);
  return {
    port: Number(new URL(url).port),
    open(port) {
      const proxied = new URL(url);
      proxied.port = String(port);
      return openPostgresStore(proxied.href, LIMIT, () => {});
    },
    async freeze() {
      const rows = await sql`
        SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`;
      frozen = rows.map(({ pid }) => pid);
      for (const pid of frozen) process.kill(pid, 'SIGSTOP');
    },
    thaw,
    empty: () => sql`DELETE FROM rate_limits`,
  };
}

const fault = fc.record({
  kind: fc.constantFrom('slow', 'slow', 'frozen', 'frozen', 'silent', 'refusing', 'empty'),
  instance: fc.nat({ max: INSTANCES - 1 }),
  slowerByMs: fc.integer({ min: 20, max: 400 }),
  lastsMs: fc.oneof(fc.integer({ min: 20, max: 400 }), fc.integer({ min: 400, max: 2500 })),
  thenMs: fc.oneof(fc.integer({ min: 0, max: 300 }), fc.integer({ min: 300, max: 1500 })),
});

// Both at once: they mostly wait.
describe.concurrent.each(hasRedis ? ['Redis', 'PostgreSQL'] : ['PostgreSQL'])(
  'a rate limit with a store in %s, whatever happens to it',
  (kind) => {
    const seed = freshSeed();

    it('refuses no client within its limit, and allows others at most the limit at each instance', async ({
      expect,
      onTestFinished,
    }) => {
      const server = await startServer(kind, onTestFinished);
      const instances = await Promise.all(
        Array.from({ length: INSTANCES }, async () => {
          const proxy = await openToxicProxy(server.port);
          const limiter = new RateLimiter(
            server.open(proxy.port),
            LIMIT,
            openLog({ LOG_LEVEL: 'silent' }),
            createMetrics(1),
          );
          onTestFinished(async () => {
            await limiter.close();
            await proxy.close();
          });
          await limiter.warmUp();
          // The more often it has asked, the better an instance knows the store's clock.
          for (let i = 0; i < 20; i++) await limiter.count(`first ${i}`).decision;
          return { proxy, limiter };
        }),
      );
      const choices = fc.sample(fc.nat({ max: 999 }), { seed, numRuns: 10_000 });
      const choose = (i: number) => choices[i % choices.length] ?? 0;
      const begin = performance.now();
      const events: string[] = [];
      const note = (text: string) => events.push(`${Math.round(performance.now() - begin)} ${text}`);
      let isOver = false;

      async function ask(client: string, i: number) {
        const sent = performance.now();
        const { allowed } = await (instances[i % INSTANCES] as (typeof instances)[0]).limiter.count(client).decision;
        if (!allowed && client !== 'over')
          note(`${client}, sent at ${Math.round(sent - begin)} to ${i % INSTANCES}: refused`);
        return { sent, came: performance.now(), status: allowed ? 200 : 429 };
      }
      type Response = Awaited<ReturnType<typeof ask>>;

      /** Sends as many requests as the limit allows, alone or in bursts, and never more in a second. */
      async function keepWithin(client: string, offset: number): Promise<Response[]> {
        const responses: Promise<Response>[] = [];
        const sent: number[] = [];
        for (let i = offset; !isOver; i++) {
          const due = (sent.at(-LIMIT) ?? 0) + 1000 + MARGIN_MS - performance.now();
          if (due > 0) await sleep(due);
          else if (choose(i) < 300) await sleep(choose(i));
          else {
            sent.push(performance.now());
            responses.push(ask(client, choose(i)));
          }
        }
        return Promise.all(responses);
      }
      async function steadily(client: string): Promise<Response[]> {
        const responses: Promise<Response>[] = [];
        for (let i = 0; !isOver; i++) {
          responses.push(ask(client, i));
          await sleep(115);
        }
        return Promise.all(responses);
      }
      async function flood(client: string): Promise<Response[]> {
        const responses: Promise<Response>[] = [];
        for (let i = 0; !isOver; i++) {
          responses.push(ask(client, choose(i)));
          await sleep(12);
        }
        return Promise.all(responses);
      }

      const within = [steadily('steady'), ...[0, 3000, 6000].map((offset) => keepWithin(`within ${offset}`, offset))];
      const over = flood('over');
      await sleep(1500);
      for (const { kind, instance, slowerByMs, lastsMs, thenMs } of fc.sample(fault, { seed, numRuns: FAULTS })) {
        const { proxy } = instances[instance] as (typeof instances)[0];
        note(`${kind} for ${lastsMs} ms (${instance})`);
        if (kind === 'empty') await server.empty();
        else if (kind === 'frozen') {
          await server.freeze();
          await sleep(lastsMs);
          await server.thaw();
        } else {
          proxy.behave(kind, slowerByMs);
          await sleep(lastsMs);
          // A connection that has lost bytes does not go on.
          if (kind === 'silent') proxy.forgetConnections();
          proxy.behave('passing');
        }
        note('passing');
        await sleep(thenMs);
      }
      isOver = true;
      for (const responses of await Promise.all(within)) {
        const refused = responses.filter(({ status }) => status === 429).length;
        expect({ refused, most: mostInASecond(responses) <= LIMIT }, events.join('\n')).toEqual({
          refused: 0,
          most: true,
        });
      }
      const most = mostInASecond(await over);
      console.log(`${kind}: ${(await over).length} requests, at most ${most} passed in a second`);
      expect(most).toBeLessThanOrEqual(INSTANCES * LIMIT);
    }, 300_000);
  },
);
