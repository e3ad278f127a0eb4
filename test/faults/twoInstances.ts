/**
 * Two instances serve requests of every kind while their database, their store and the connections to both fail at random.
 * Each response, refusal and log line must be one that docs/operations.md allows at that time. SOAK_SECONDS sets how long it
 * runs on each store.
 */
import { Agent, request as sendRequest } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { pino } from 'pino';
import type { Response } from 'supertest';
import { expect, inject, it, onTestFinished } from 'vitest';
import { createApiKey, revokeApiKeys } from '../../src/keys/keys.js';
import type { Log } from '../../src/log.js';
import { LIMIT, STORES, type StoreServer, startStoreServer } from '../service/rateLimit/storeServer.js';
import { connectTo } from '../support/connection.js';
import { closeDatabase, openDatabase } from '../support/database.js';
import { numbersFrom, PROFILES, write } from '../support/numbers.js';
import { expectDescribed } from '../support/response.js';
import { freshSeed } from '../support/seed.js';
import { listenOn, metricOf } from '../support/service.js';
import { openToxicProxy } from '../support/toxicProxy.js';
import { until } from '../support/until.js';
import { type Caller, createDice, createRequests, PATH, type Received, type Request } from './randomRequests.js';

const SECONDS = Number(process.env.SOAK_SECONDS ?? 10 * inject('tries'));
const REQUEST_TIMEOUT_SECONDS = 3;
/** What a busy machine may add to a request's time. */
const SLACK_MS = 7000;
/** How long requests may fail after a fault of the database: dead connections are found after a second and a half. */
const RECOVERY_MS = 4000;
const WINDOW_MS = 1000;
/** The interval at which the instances' metrics are read. */
const METRICS_INTERVAL_MS = 100;
/** A revoked key stops working within this time. */
const REVOKED_MS = 5000;
/** How often PostgreSQL is asked for nothing, and when the machine counts as busy if that takes longer. */
const PROBE_INTERVAL_MS = 100;
const BUSY_MS = 250;
const MAX_BUSY_SHARE = 0.25;
/** How long requests may fail after it was busy: reads that were kept waiting are refused within half a second. */
const BUSY_RECOVERY_MS = 1000;

const fault = fc.record({
  where: fc.constantFrom('database' as const, 'store' as const),
  what: fc.constantFrom(
    ...(['slow', 'silent', 'refusing', 'forgotten', 'frozen', 'killed', 'locked', 'cleared', 'terminated'] as const),
  ),
  instance: fc.nat({ max: 1 }),
  slowerByMs: fc.integer({ min: 20, max: 400 }),
  lastsMs: fc.oneof(fc.integer({ min: 20, max: 400 }), fc.integer({ min: 400, max: 4000 })),
  thenMs: fc.oneof(fc.integer({ min: 0, max: 500 }), fc.integer({ min: 500, max: 6000 })),
});
type Fault = typeof fault extends fc.Arbitrary<infer T> ? T : never;

/** The lines that the log may have, other than those of requests. */
const MESSAGES = [
  'rate limit store unavailable; counting per instance',
  'rate limit store available again',
  'idle clients could not be removed from rate_limits',
  'the database does not respond',
  'the database responds again',
  'the database did not complete a statement',
];

interface Line {
  level: number;
  msg?: string;
  requestId?: string;
  status?: number;
  client?: string;
}

/** Starts an instance behind proxies to its database and its store. */
async function startInstance(postgres: StoreServer, redis: StoreServer | undefined) {
  const proxies = {
    database: await openToxicProxy(postgres.port),
    store: await openToxicProxy((redis ?? postgres).port),
  };
  const lines: Line[] = [];
  const log = pino({ level: 'debug' }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  const settings = {
    AUTH: 'api-key',
    TRUST_PROXY: '1',
    RATE_LIMIT_PER_SECOND: String(LIMIT),
    REQUEST_TIMEOUT_SECONDS: String(REQUEST_TIMEOUT_SECONDS),
    DATABASE_CONNECTIONS: '4',
    ...(redis && { REDIS_URL: `redis://127.0.0.1:${proxies.store.port}` }),
  };
  const service = await listenOn(proxies.database.through(postgres.url), settings, log as Log);
  lines.length = 0;
  const agent = new Agent({ keepAlive: true });
  const storeErrors = () => metricOf(service, 'rate_limit_store_errors_total');
  async function close() {
    await service.close(0);
    agent.destroy();
    await Promise.all([proxies.database.close(), proxies.store.close()]);
  }
  return { url: service.url, proxies, lines, agent, storeErrors, close };
}

/** Tests them with one of STORES. Each is tested in its own file, so that the requests have a process of their own. */
export function testTwoInstances(kind: string): void {
  const timeout = (SECONDS + 120) * 1000;
  const title = `two instances with the limit in ${kind} send only responses that are right while all that they use fails`;
  it.skipIf(!STORES.includes(kind))(title, { timeout }, () =>
    run(kind).catch((error) => {
      // Of a try that is retried, Vitest prints nothing.
      console.log(error);
      throw error;
    }),
  );
}

async function run(kind: string): Promise<void> {
  const seed = freshSeed();
  const dice = createDice(seed);
  const postgres = await startStoreServer('PostgreSQL');
  const redis = kind === 'Redis' ? await startStoreServer('Redis') : undefined;
  const database = openDatabase(postgres.url);
  const [numbers = []] = fc.sample(numbersFrom(70), { seed, numRuns: 1 });
  await write(database, numbers);
  const instances = [await startInstance(postgres, redis), await startInstance(postgres, redis)] as const;
  let isOver = false;
  const background: Promise<void>[] = [];
  onTestFinished(async () => {
    isOver = true;
    await Promise.allSettled(background);
    await Promise.all(instances.map(({ close }) => close()));
    await closeDatabase(database, 0);
    await Promise.all([postgres.close(), redis?.close()]);
  });
  const requests = createRequests(numbers, seed, dice);
  const begin = performance.now();
  const exchanges: Received[] = [];
  const open = new Set<Promise<unknown>>();
  const wrong: string[] = [];

  const secondsOf = (time: number) => ((time - begin) / 1000).toFixed(3);
  function report({ id, instance, request, sentAt, cameAt, status }: Received, reason: unknown): void {
    const { caller, method, path } = request;
    const times = `${secondsOf(sentAt)}–${secondsOf(cameAt)}`;
    wrong.push(`${times} ${id} to ${instance} of ${caller.id}, ${method} ${path}: ${status}, ${reason}`);
  }

  function send(request: Request): Received {
    const instance = dice.below(2);
    const { url, agent } = instances[instance] as (typeof instances)[0];
    const id = `soak-${exchanges.length}`;
    const times = { sentAt: performance.now(), cameAt: 0 };
    const received: Received = { id, request, instance, ...times, status: undefined, headers: {}, text: '' };
    exchanges.push(received);
    const headers = { ...request.headers, 'X-Request-Id': id };
    const outgoing = sendRequest(`${url}${request.path}`, { method: request.method, agent, headers });
    const done = new Promise<void>((resolve) => {
      outgoing.once('error', resolve).once('close', resolve).end();
      outgoing.once('response', (response) => {
        response.setEncoding('utf8').on('data', (text) => Object.assign(received, { text: received.text + text }));
        const { statusCode: status, headers } = response;
        response.once('end', () => Object.assign(received, { status, headers }));
      });
      if (request.isAborted) setTimeout(() => outgoing.destroy(), dice.below(60));
    }).then(() => {
      received.cameAt = performance.now();
      try {
        if (request.statuses.includes(received.status ?? 0)) request.check(received);
      } catch (error) {
        report(received, (error as Error).message.slice(0, 2000));
      }
      open.delete(done);
    });
    open.add(done);
    return received;
  }

  /** Sends requests, at most LIMIT in any second if the caller keeps its limit. */
  async function keepSending(caller: Caller, maxPauseMs: number, next: (caller: Caller) => Request): Promise<void> {
    for (let recent: Received[] = []; !isOver; ) {
      await sleep(dice.below(maxPauseMs));
      const earliest = performance.now() - WINDOW_MS - 5;
      recent = recent.filter(({ cameAt }) => cameAt === 0 || cameAt > earliest);
      if (!caller.keepsLimit || recent.length < LIMIT) recent.push(send(next(caller)));
    }
  }

  /**
   * Executes statements on a new connection, which is closed at the end, or after ten seconds. They don't wait for locks that
   * long: PostgreSQL would keep them waiting after that, and other statements behind them. A connection that was forgotten
   * between Parse and Bind keeps its locks.
   */
  async function execute(statements: string): Promise<void> {
    const sql = connectTo(postgres.url, { connection: { lock_timeout: 1000 } });
    await Promise.race([sql.unsafe(statements), sleep(10_000)]).catch(() => {});
    await sql.end({ timeout: 0 });
  }

  /** When the database failed, and when the store lost its data. */
  const outages: { from: number; to: number; what: string }[] = [];
  const losses: typeof outages = [];
  /** When a server went on. It counts the requests then that it received before. */
  const thaws: number[] = [];
  async function fail({ where, what, instance, slowerByMs, lastsMs }: Fault): Promise<void> {
    // Without Redis, the store uses the database's connections. Locks and ended sessions are faults of PostgreSQL alone.
    const target = redis && !['locked', 'terminated'].includes(what) ? where : 'database';
    const server = target === 'store' ? (redis as StoreServer) : postgres;
    const proxy = instances[instance as 0 | 1].proxies[target];
    const outage = { from: performance.now(), to: Number.POSITIVE_INFINITY, what: `${what} ${target} (${instance})` };
    if (target === 'database') outages.push(outage);
    if (what === 'cleared') await (redis?.clear() ?? execute('DELETE FROM rate_limits'));
    else if (what === 'terminated') {
      await execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ~ '^branded'");
    } else if (what === 'locked') {
      await execute(`BEGIN; LOCK ${dice.oneOf(['items', 'rate_limits'])}; SELECT pg_sleep(${lastsMs / 1000})`);
    } else if (what === 'killed') {
      await server.kill();
      await sleep(lastsMs);
      await server.start();
    } else if (what === 'frozen') {
      await server.freeze();
      await sleep(lastsMs);
      await server.thaw();
      thaws.push(performance.now());
    } else if (what === 'forgotten') proxy.forgetConnections();
    else {
      proxy.behave(what, slowerByMs);
      await sleep(lastsMs);
      // A connection that has lost bytes can't be used any more.
      if (what === 'silent') proxy.forgetConnections();
      proxy.behave('passing');
    }
    outage.to = performance.now();
    if (what === 'cleared' || what === 'killed') losses.push(outage);
  }

  /** When PostgreSQL took long without any fault: an instance replaces its connections then, as it should. */
  const busy: { from: number; to: number }[] = [];
  async function watchMachine(): Promise<void> {
    while (!isOver) {
      const from = performance.now();
      await sleep(PROBE_INTERVAL_MS);
      await execute('SELECT');
      const to = performance.now();
      if (to - from > PROBE_INTERVAL_MS + BUSY_MS) busy.push({ from, to });
    }
  }
  const isFailing = (from: number, to: number) =>
    outages.some((outage) => outage.from <= to && outage.to + RECOVERY_MS >= from) ||
    busy.some((moment) => moment.from <= to && moment.to + BUSY_RECOVERY_MS >= from);

  /** How many requests the instances had decided without the store, each read between two times. */
  const decidedAlone: { from: number; to: number; count: number }[] = [];
  async function readMetrics(): Promise<void> {
    const from = performance.now();
    const [first, second] = await Promise.all([instances[0].storeErrors(), instances[1].storeErrors()]);
    decidedAlone.push({ from, to: performance.now(), count: first + second });
  }
  /** Returns whether the store may not have counted all requests between two times. */
  function isUnshared(from: number, to: number): boolean {
    const before = decidedAlone.findLast((read) => read.to <= from)?.count ?? 0;
    const after = (decidedAlone.find((read) => read.from >= to) ?? decidedAlone.at(-1))?.count ?? 0;
    return after > before || losses.some((loss) => loss.from <= to && loss.to >= from);
  }

  const newKey = async (keepsLimit: boolean, profiles?: string[]) => {
    const { key, created } = await createApiKey(database, 'soak', { businessProfileIds: profiles ?? null });
    const caller = { id: `key:${created.id}`, headers: { Authorization: `Bearer ${key}` }, keepsLimit };
    return profiles ? { ...caller, profiles } : caller;
  };
  const addressOf = (i: number, keepsLimit: boolean): Caller => {
    return { id: `address:203.0.113.${i}`, headers: { 'X-Forwarded-For': `203.0.113.${i}` }, keepsLimit };
  };
  /** Revokes a key, on a new connection, since a fault may have ended the first one. Returns whether that succeeded. */
  async function revoke(id: string): Promise<boolean> {
    const current = openDatabase(postgres.url);
    const isRevoked = revokeApiKeys(current, [id]).then(
      () => true,
      () => false,
    );
    return isRevoked.finally(() => closeDatabase(current, 0));
  }
  const revoked = await newKey(false);
  let revokedAt = Number.POSITIVE_INFINITY;
  // The first requests would wait for the instances' first connections, on a busy machine too long.
  const openConnections = async () => {
    const { headers } = await newKey(false);
    const urls = instances.flatMap(({ url }) => Array(LIMIT / 2).fill(`${url}${PATH}`));
    const responses = await Promise.all(urls.map((url) => fetch(url, { headers })));
    await Promise.all(responses.map((response) => response.arrayBuffer()));
    return responses.every(({ status }) => status === 200);
  };
  await until(openConnections, 'as many requests as the limit allows succeed at once', 30_000);
  const [steady, limited, eager, aborting] = [
    await newKey(true),
    await newKey(true, [PROFILES[0]?.id ?? '']),
    await newKey(false),
    await newKey(false),
  ];
  async function keepReadingMetrics(): Promise<void> {
    for (; !isOver; await sleep(METRICS_INTERVAL_MS)) await readMetrics();
  }
  background.push(
    watchMachine(),
    keepReadingMetrics(),
    keepSending(steady, 120, requests.any),
    keepSending(limited, 120, requests.any),
    keepSending(eager, 40, requests.any),
    keepSending(aborting, 400, requests.aborted),
    keepSending(revoked, 600, (caller) => {
      const statuses = performance.now() < revokedAt + REVOKED_MS ? [200, 401] : [401];
      return { ...requests.page(caller), statuses, isCounted: false, check() {} };
    }),
    keepSending(addressOf(1, true), 250, requests.unidentified),
    keepSending(addressOf(2, false), 40, requests.unidentified),
    keepSending(addressOf(3, false), 300, requests.uncounted),
  );
  await sleep(2000);
  for (const next of fc.sample(fault, { seed, numRuns: 1000 })) {
    const elapsed = performance.now() - begin;
    if (elapsed > SECONDS * 1000) break;
    await fail(next);
    await sleep(next.thenMs);
    if (revokedAt < Number.POSITIVE_INFINITY || elapsed < SECONDS * 300) continue;
    await until(() => revoke(revoked.id.slice('key:'.length)), 'the key is revoked', 30_000);
    revokedAt = performance.now();
  }
  await sleep(RECOVERY_MS + 2 * WINDOW_MS);
  isOver = true;
  await Promise.all(background);
  await Promise.all(open);
  await readMetrics();

  function expectAllowed({ request, status, sentAt, cameAt, headers, text }: Received): void {
    const { caller, method, path, statuses, needsDatabase } = request;
    if (path.split('?')[0] === PATH) {
      expect(headers['ratelimit-policy']).toBe('"default";q=10;w=1');
      expect(headers.ratelimit).toMatch(/^"default";r=\d;t=1$/);
      const get = (name: string) => headers[name.toLowerCase()];
      if (method !== 'HEAD') expectDescribed({ status, text, get } as unknown as Response);
    }
    if (statuses.includes(status ?? 0)) return;
    if (status === 429) {
      expect([headers['retry-after'], headers.ratelimit]).toEqual(['1', '"default";r=0;t=1']);
      const earliest = sentAt - 2 * WINDOW_MS;
      const isCountedLate = thaws.some((time) => time >= earliest && time <= cameAt);
      if (caller.keepsLimit) expect(isCountedLate || isUnshared(earliest, cameAt)).toBe(true);
    } else {
      expect([status, needsDatabase, isFailing(sentAt, cameAt)]).toEqual([503, true, true]);
      if (path !== '/readyz') expect(headers['retry-after']).toMatch(/^[1-9]\d*$/);
    }
  }

  const logged = new Map<string, { instance: number; line: Line }[]>();
  for (const [instance, { lines }] of instances.entries()) {
    for (const line of lines) {
      const isExpected = line.status === undefined ? MESSAGES.includes(line.msg ?? '') : line.level <= 30;
      const text = JSON.stringify(line);
      if (!isExpected || /bpn_|\+\d{3}/.test(text)) wrong.push(`log: ${text}`);
      const id = line.requestId ?? '';
      logged.set(id, [...(logged.get(id) ?? []), { instance, line }]);
    }
  }
  const seen: Record<string, number> = {};
  for (const exchange of exchanges) {
    const { id, request, instance, sentAt, cameAt, status } = exchange;
    if (status === undefined) {
      if (!request.isAborted) report(exchange, 'no response');
      continue;
    }
    seen[status] = (seen[status] ?? 0) + 1;
    try {
      expectAllowed(exchange);
      const client = request.isCounted && status !== 503 ? { client: request.caller.id } : {};
      expect(logged.get(id)).toEqual([{ instance, line: expect.objectContaining({ status, ...client }) }]);
      expect(cameAt - sentAt).toBeLessThan(REQUEST_TIMEOUT_SECONDS * 1000 + SLACK_MS);
    } catch (error) {
      report(exchange, (error as Error).message.slice(0, 2000));
    }
  }
  const allowed = exchanges.filter(({ request, status = 0 }) => request.isCounted && ![0, 429, 503].includes(status));
  let most = 0;
  for (const [i, first] of allowed.entries()) {
    const end = first.sentAt + WINDOW_MS;
    let count = 0;
    for (const { request, sentAt, cameAt } of allowed.slice(i, i + 1000)) {
      if (sentAt >= end) break;
      if (request.caller === first.request.caller && cameAt < end) count++;
    }
    const isShared = !isUnshared(first.sentAt - WINDOW_MS, end);
    if (isShared) most = Math.max(most, count);
    if (count > (isShared ? 1 : instances.length) * LIMIT) report(first, `one of ${count} allowed in a second`);
  }
  const busyMs = busy.reduce((sum, { from, to }) => sum + to - from, 0);
  const busyShare = busyMs / (performance.now() - begin);
  const figures = { requests: exchanges.length, statuses: seen, outages: outages.length, busyShare, most };
  console.log(kind, JSON.stringify({ ...figures, decidedAlone: decidedAlone.at(-1)?.count }));
  const faults = outages.map(({ from, to, what }) => `${secondsOf(from)}–${secondsOf(to)} ${what}`);
  if (wrong.length > 0) console.log([`${wrong.length} wrong:`, ...wrong.slice(0, 20), 'faults:', ...faults].join('\n'));
  expect(wrong).toEqual([]);
  expect(Object.keys(seen)).toEqual(expect.arrayContaining(['200', '304', '400', '401', '404', '405', '429']));
  // The store of a busy machine may not count a single second's requests in time.
  if (busyShare < MAX_BUSY_SHARE) expect(most).toBe(LIMIT);
}
