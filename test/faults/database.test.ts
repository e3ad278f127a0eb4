/** A service with a proxy before its database that can fail like a network, and the responses that it may send then. */
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Service } from '../../src/service/server.js';
import { connectTo } from '../support/connection.js';
import { useDatabase } from '../support/database.js';
import { useServiceOn } from '../support/service.js';
import type { TimedResponse } from '../support/timedResponses.js';
import { type ToxicProxy, useProxy } from '../support/toxicProxy.js';
import { until } from '../support/until.js';

/** The deadline of a request. */
const DEADLINE_MS = 2000;
/** The time that a busy machine may add; with DEADLINE_MS, less than a service's default deadline. */
const SLACK_MS = 2500;

const database = useDatabase();
let proxy: ToxicProxy;
let service: Service;
beforeEach(async () => {
  proxy = await useProxy(database.url);
});

async function start(environment: Record<string, string> = {}): Promise<void> {
  const settings = { REQUEST_TIMEOUT_SECONDS: String(DEADLINE_MS / 1000), ...environment };
  service = await useServiceOn(proxy.through(database.url), settings);
  expect((await ask()).status).toBe(200);
}

interface ProblemResponse extends TimedResponse {
  type: string | undefined;
  retryAfter: string | null;
}

async function ask(path = '/v1/brandedPhoneNumbers'): Promise<ProblemResponse> {
  const sentAt = performance.now();
  const response = await fetch(service.url + path);
  const { type } = (await response.json()) as { type?: string };
  const retryAfter = response.headers.get('Retry-After');
  return { status: response.status, sentAt, endedAt: performance.now(), type, retryAfter };
}

const askTogether = (count: number) => Promise.all(Array.from({ length: count }, () => ask()));

/** Fails unless the response is the 503 that these faults may cause, within the deadline. */
function expectUnavailable({ status, sentAt, endedAt, type, retryAfter }: ProblemResponse): void {
  expect([status, type, retryAfter]).toEqual([503, '/problems/unavailable', '1']);
  expect(endedAt - sentAt).toBeLessThan(DEADLINE_MS + SLACK_MS);
}

describe('a database', () => {
  it.each(['refusing', 'silent'] as const)(
    'causes 503s in time and makes the service unready while it is %s, and is used again afterwards',
    async (behaviour) => {
      await start();
      await askTogether(20);
      proxy.behave(behaviour);
      const responses = askTogether(20);
      const { status, sentAt, endedAt } = await ask('/readyz');
      expect(status).toBe(503);
      expect(endedAt - sentAt).toBeLessThan(DEADLINE_MS);
      for (const response of await responses) expectUnavailable(response);
      for (const response of await askTogether(30)) expectUnavailable(response);
      proxy.behave('passing');
      await until(async () => (await ask()).status === 200, 'requests succeed again');
      expect(await ask('/readyz')).toMatchObject({ status: 200 });
      // More than once, because on a busy machine some of thirty may wait for too long.
      const succeed = async () => (await askTogether(30)).every((response) => response.status === 200);
      await until(succeed, 'thirty requests at once succeed');
    },
  );

  it.each<[string, () => unknown]>([
    [
      'connections are cut during queries',
      async () => {
        for (let i = 0; i < 3; i++) {
          await sleep(15);
          proxy.behave('refusing');
          proxy.behave('passing');
        }
      },
    ],
    ['connections become half-open, while new ones pass', () => proxy.forgetConnections()],
    [
      'sessions are terminated',
      async () => {
        const sql = connectTo(database.url);
        for (let i = 0; i < 3; i++) {
          await sql`
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name LIKE 'branded-phone-numbers %'`;
        }
        await sql.end();
      },
    ],
  ])('causes no 503 if its %s', async (_name, cause) => {
    await start({ REQUEST_TIMEOUT_SECONDS: '5', DATABASE_CONNECTIONS: '8' });
    const served = () => database.sql`
      SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'select items, %'`;
    await until(async () => {
      await askTogether(30);
      return (await served()).length === 8;
    }, 'each connection has served');
    // So all thirty reads are sent at once: one that waited for half a second would get a 503.
    const responses = askTogether(30);
    await cause();
    expect((await responses).map(({ status }) => status)).toEqual(Array(30).fill(200));
  });
});
