import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { connectTo } from '../support/connection.js';
import {
  askTogether,
  DEADLINE_MS,
  databaseUrl,
  expectUnavailable,
  proxy,
  ready,
  recovery,
  start,
  useFailingDatabase,
} from '../support/failingDatabase.js';
import { until } from '../support/until.js';

useFailingDatabase();

describe('a database', () => {
  it.each(['refusing', 'silent'] as const)(
    'causes 503s in time and makes the service unready while it is %s, and is used again afterwards',
    async (behaviour) => {
      await start(proxy.through(databaseUrl));
      await askTogether(20);
      proxy.behave(behaviour);
      const responses = askTogether(20);
      const { status, sentAt, endedAt } = await ready();
      expect(status).toBe(503);
      expect(endedAt - sentAt).toBeLessThan(DEADLINE_MS);
      for (const response of await responses) expectUnavailable(response);
      for (const response of await askTogether(30)) expectUnavailable(response);
      proxy.behave('passing');
      await recovery();
      expect(await ready()).toMatchObject({ status: 200 });
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
        const sql = connectTo(databaseUrl);
        for (let i = 0; i < 3; i++) {
          await sql`
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name LIKE 'branded-phone-numbers %'`;
        }
        await sql.end();
      },
    ],
  ])('causes no 503 if its %s', async (_name, cause) => {
    // All thirty reads are sent at once: one that waited for half a second would get a 503.
    await start(proxy.through(databaseUrl), { REQUEST_TIMEOUT_SECONDS: '5', DATABASE_CONNECTIONS: '8' });
    await askTogether(30);
    const responses = askTogether(30);
    await cause();
    expect((await responses).map(({ status }) => status)).toEqual(Array(30).fill(200));
  });
});
