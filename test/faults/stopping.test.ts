import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { connectTo } from '../connection.js';
import { until } from '../until.js';
import { ask, codeOf, databaseUrl, PATH, serve, useCommandThatServes } from './served.js';

useCommandThatServes();

it('A stop waits for the request that is running', async () => {
  const { child, url } = await serve({ DRAIN_SECONDS: '0' });
  expect((await ask(`${url}${PATH}`)).status).toBe(200);
  const [holder, sql] = [connectTo(databaseUrl), connectTo(databaseUrl)];
  await holder`BEGIN`;
  await holder`LOCK items IN ACCESS EXCLUSIVE MODE`;
  const running = ask(`${url}${PATH}`);
  await until(async () => {
    const [row] =
      await sql`SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`;
    return row !== undefined;
  }, 'the request waits for the lock');
  child.kill('SIGTERM');
  // PostgreSQL cancels a statement after a second.
  await sleep(500);
  expect(child.exitCode).toBe(null);
  await holder`ROLLBACK`;
  await Promise.all([holder.end(), sql.end()]);
  expect((await running).status).toBe(200);
  // It does not wait until the connection that the client keeps is cut, after 5.5 s.
  expect(await Promise.race([codeOf(child), sleep(4000, 'still runs')])).toBe(0);
});
