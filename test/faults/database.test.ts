/** Trouble with the database: each fault gives at worst 503 problems, and ends by itself. */
import postgres from 'postgres';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startPostgres } from '../../cluster/postgresServer.js';
import { readConfig } from '../../src/config.js';
import { migrateDatabase } from '../../src/database.js';
import { openLog } from '../../src/log.js';
import { type Service, startService } from '../../src/server.js';
import { createDatabase } from '../database.js';
import { crowd } from './crowd.js';
import { openToxicProxy, type ToxicProxy } from './toxicProxy.js';

const PATH = '/v1/brandedPhoneNumbers';
const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

let databaseUrl: string;
let drop: () => Promise<void>;
let proxy: ToxicProxy;
let service: Service;

beforeAll(async () => {
  ({ url: databaseUrl, drop } = await createDatabase());
});
afterAll(() => drop());
beforeEach(async () => {
  proxy = await openToxicProxy(Number(new URL(databaseUrl).port));
});
afterEach(async () => {
  await service.close();
  await proxy.close();
});

async function start(url: string, environment: Record<string, string> = {}): Promise<void> {
  const settings = {
    PORT: '0',
    LOG_LEVEL: process.env.FAULT_LOG ?? 'silent',
    RATE_LIMIT_PER_SECOND: '0',
    REQUEST_TIMEOUT_SECONDS: '2',
  };
  const config = readConfig({ ...settings, ...environment });
  service = await startService(config, url, openLog(config));
  expect((await ask()).status).toBe(200);
}

interface Answer {
  status: number;
  milliseconds: number;
  type: string | undefined;
  retryAfter: string | null;
}

async function ask(): Promise<Answer> {
  const sent = performance.now();
  const response = await fetch(`${service.url}${PATH}`);
  const { type } = (await response.json()) as { type?: string };
  return {
    status: response.status,
    milliseconds: performance.now() - sent,
    type,
    retryAfter: response.headers.get('Retry-After'),
  };
}

const askTogether = (count: number) => Promise.all(Array.from({ length: count }, ask));

async function ready(): Promise<{ status: number; milliseconds: number }> {
  const sent = performance.now();
  const { status } = await fetch(`${service.url}/readyz`);
  return { status, milliseconds: performance.now() - sent };
}

/** The problem that any of these faults may cause, in time. */
function expectUnavailable({ status, milliseconds, type, retryAfter }: Answer): void {
  expect([status, type, retryAfter]).toEqual([503, '/problems/unavailable', '1']);
  expect(milliseconds).toBeLessThan(2300);
}

/** Milliseconds until requests are answered again. */
async function recovery(): Promise<number> {
  const begin = performance.now();
  while ((await ask()).status !== 200) if (performance.now() - begin > 10_000) break;
  return performance.now() - begin;
}

describe('a database', () => {
  it('that cannot be reached is 503, and used again when it can', async () => {
    await start(proxy.through(databaseUrl));
    proxy.behave('refusing');
    for (const answer of await askTogether(30)) expectUnavailable(answer);
    expect(await ready()).toMatchObject({ status: 503 });
    proxy.behave('passing');
    expect(await recovery()).toBeLessThan(2000);
    expect(await ready()).toMatchObject({ status: 200 });
  });

  it('whose connections are cut in the middle of queries costs no request', async () => {
    await start(proxy.through(databaseUrl));
    const answers = askTogether(60);
    for (let i = 0; i < 3; i++) {
      await pause(15);
      proxy.behave('refusing');
      proxy.behave('passing');
    }
    expect((await answers).map(({ status }) => status)).toEqual(Array(60).fill(200));
  });

  it('that hangs is 503 within the deadline, unready within a second, and used again when it answers', async () => {
    await start(proxy.through(databaseUrl));
    await askTogether(20);
    proxy.behave('silent');
    const answers = askTogether(20);
    const { status, milliseconds } = await ready();
    expect(status).toBe(503);
    expect(milliseconds).toBeLessThan(1000);
    for (const answer of await answers) expectUnavailable(answer);
    for (const answer of await askTogether(20)) expectUnavailable(answer);
    proxy.behave('passing');
    expect(await recovery()).toBeLessThan(2000);
    expect((await askTogether(30)).map((answer) => answer.status)).toEqual(Array(30).fill(200));
  });

  it('whose connections are half-open, while new ones pass, costs no request', async () => {
    await start(proxy.through(databaseUrl));
    await askTogether(30);
    proxy.forgetConnections();
    const answers = await askTogether(30);
    expect(answers.map(({ status }) => status)).toEqual(Array(30).fill(200));
    expect(Math.max(...answers.map(({ milliseconds }) => milliseconds))).toBeLessThan(2000);
  });

  it('with a table that is locked is 503 within the deadline, and its connections do not pile up', async () => {
    await start(databaseUrl);
    await askTogether(20);
    const sql = postgres(databaseUrl, { max: 1 });
    const holder = await sql.reserve();
    await holder`BEGIN`;
    await holder`LOCK branded_phone_numbers IN ACCESS EXCLUSIVE MODE`;
    for (let i = 0; i < 3; i++) for (const answer of await askTogether(20)) expectUnavailable(answer);
    const [connections] = await holder`
      SELECT count(*)::int AS count FROM pg_stat_activity
      WHERE datname = current_database() AND application_name LIKE 'branded-phone-numbers %'`;
    await holder`ROLLBACK`;
    holder.release();
    await sql.end();
    expect(connections?.count).toBeLessThanOrEqual(21);
    expect(await recovery()).toBeLessThan(2000);
  });

  it('that ends a connection with every statement it gives up is used again at once', async () => {
    await start(databaseUrl);
    await askTogether(20);
    const sql = postgres(databaseUrl, { max: 1 });
    const answers = askTogether(40);
    for (let i = 0; i < 3; i++) {
      await sql`
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'branded-phone-numbers %'`;
    }
    expect((await answers).map(({ status }) => status)).toEqual(Array(40).fill(200));
    await sql.end();
  });

  it('that has no connection left is 503, and used again when it has', async () => {
    const server = await startPostgres({ max_connections: '20' });
    await migrateDatabase(server.url);
    const between = await openToxicProxy(server.port);
    await start(between.through(server.url), { DATABASE_CONNECTIONS: '4' });
    await askTogether(20);
    between.behave('refusing');
    const others = await crowd(server.url);
    between.behave('passing');
    for (let i = 0; i < 2; i++) for (const answer of await askTogether(20)) expectUnavailable(answer);
    expect(await ready()).toMatchObject({ status: 503 });
    expect(between.connections()).toBeLessThan(20);
    await others.leave();
    expect(await recovery()).toBeLessThan(2000);
    expect((await askTogether(20)).map(({ status }) => status)).toEqual(Array(20).fill(200));
    await service.close();
    await between.close();
    await server.remove();
    await start(databaseUrl);
  });

  it('that moves to the next host of DATABASE_URL is found there, and no request is lost', async () => {
    const other = await openToxicProxy(Number(new URL(databaseUrl).port));
    const both = proxy
      .through(databaseUrl)
      .replace(`127.0.0.1:${proxy.port}`, `127.0.0.1:${proxy.port},127.0.0.1:${other.port}`);
    await start(both);
    await askTogether(20);
    expect(other.connections()).toBe(0);
    const answers = askTogether(50);
    await pause(5);
    proxy.behave('refusing');
    expect((await answers).map(({ status }) => status)).toEqual(Array(50).fill(200));
    expect((await ask()).status).toBe(200);
    expect(other.connections()).toBeGreaterThan(0);
    await service.close();
    await other.close();
    await start(databaseUrl);
  });

  it('that hangs at one host is found at the next', async () => {
    const other = await openToxicProxy(Number(new URL(databaseUrl).port));
    await start(proxy.through(databaseUrl).replace(`:${proxy.port}`, `:${proxy.port},127.0.0.1:${other.port}`), {
      REQUEST_TIMEOUT_SECONDS: '5',
    });
    proxy.behave('silent');
    expect((await askTogether(20)).map(({ status }) => status)).toEqual(Array(20).fill(200));
    await service.close();
    await other.close();
    await start(databaseUrl);
  });
});

describe('too many requests at once', () => {
  it('are refused at once, and the others served', async () => {
    await start(proxy.through(databaseUrl), { MAX_REQUESTS_IN_FLIGHT: '20' });
    await askTogether(10);
    proxy.behave('silent');
    const answers = askTogether(60);
    await pause(400);
    proxy.behave('passing');
    const quick = (await answers).filter(({ status, milliseconds }) => status === 503 && milliseconds < 800);
    expect(quick.length).toBeGreaterThanOrEqual(40);
    expect(await recovery()).toBeLessThan(2000);
  });
});

describe('the database server', () => {
  it.each(['SIGINT', 'SIGKILL'] as const)(
    'ended by %s and started again is used again without a restart',
    async (signal) => {
      const server = await startPostgres();
      await migrateDatabase(server.url);
      await start(server.url);
      const answers: Promise<Answer>[] = [];
      const load = setInterval(() => answers.push(ask()), 10);
      await pause(300);
      await server.stop(signal);
      await pause(1500);
      await server.start();
      const recovered = await recovery();
      await pause(300);
      clearInterval(load);
      const all = await Promise.all(answers);
      expect([...new Set(all.map(({ status }) => status))].sort()).toEqual([200, 503]);
      for (const answer of all.filter(({ status }) => status === 503)) expectUnavailable(answer);
      expect(recovered).toBeLessThan(2000);
      await service.close();
      await server.remove();
      await start(databaseUrl);
    },
  );
});
