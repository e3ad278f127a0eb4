/** SIGTERM to the command `serve`: no request fails, and the process exits in time. */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { Agent, get, type IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { untilLockIsAwaited, whileLocked } from '../support/connection.js';
import { useDatabase } from '../support/database.js';
import { openSocket } from '../support/rawHttp.js';
import { SERVE, startServer } from '../support/serverProcess.js';
import { useProxy } from '../support/toxicProxy.js';
import { holdPages } from '../support/unreadPages.js';
import { until } from '../support/until.js';

const PATH = '/v1/brandedPhoneNumbers';
const database = useDatabase();
let child: ChildProcess;
afterEach(() => void child.kill('SIGKILL'));

type Response = { status: number | undefined; closes: boolean };

async function serve(environment: Record<string, string> = {}): Promise<string> {
  const settings = { DATABASE_URL: database.url, RATE_LIMIT_PER_SECOND: '0', ...environment };
  const server = await startServer(SERVE, settings);
  child = server.child;
  return server.url;
}

/** Sends a request; returns the response's status and whether it has `Connection: close`. */
async function send(url: string, agent?: Agent): Promise<Response> {
  const [response] = (await once(get(url, agent ? { agent } : {}), 'response')) as [IncomingMessage];
  await once(response.resume(), 'end');
  return { status: response.statusCode, closes: response.headers.connection === 'close' };
}

/** Fails unless the service exits with 0 in time. */
async function expectExit(withinMs = 10_000): Promise<void> {
  const begin = performance.now();
  if (child.exitCode === null) await once(child, 'exit');
  expect(child.exitCode).toBe(0);
  expect(performance.now() - begin).toBeLessThan(withinMs);
}

describe('SIGTERM', () => {
  it('makes the service unready at once, fails no request, and makes it exit with 0', async () => {
    // Longer than the load, on a busy machine, too.
    const url = await serve({ DRAIN_SECONDS: '5' });
    const agent = new Agent({ keepAlive: true, maxSockets: 20 });
    const outcomes: Response[] = [];
    // Like a load balancer: reuses no connection after `Connection: close`, and stops once the service is unready.
    let isReady = true;
    const load = Array.from({ length: 20 }, async () => {
      while (isReady) outcomes.push(await send(`${url}${PATH}`, agent));
    });
    await until(() => outcomes.length > 50, '50 requests get responses');
    child.kill('SIGTERM');
    await until(async () => (await send(`${url}/readyz`)).status === 503, 'it is unready');
    expect((await send(`${url}/healthz`)).status).toBe(200);
    expect(await send(`${url}${PATH}`, agent)).toEqual({ status: 200, closes: true });
    await sleep(500);
    isReady = false;
    await Promise.all(load);
    await expectExit();
    expect([...new Set(outcomes.map(({ status }) => status))]).toEqual([200]);
  });

  it('lets a running request finish', async () => {
    const url = await serve({ DRAIN_SECONDS: '0' });
    expect((await send(`${url}${PATH}`)).status).toBe(200);
    const [running] = await whileLocked(database.url, 'LOCK items', async () => {
      const running = send(`${url}${PATH}`);
      await untilLockIsAwaited(database.sql, 'the request waits for the lock');
      child.kill('SIGTERM');
      // PostgreSQL cancels a statement after a second.
      await sleep(500);
      expect(child.exitCode).toBe(null);
      return [running];
    });
    expect((await running)?.status).toBe(200);
    // It does not wait until the idle connection of the client times out, after 5.5 s.
    await expectExit(4500);
  });

  it('makes the service exit in time although the database hangs and clients keep their connections open', async () => {
    const proxy = await useProxy(database.url);
    const url = await serve({
      DATABASE_URL: proxy.through(database.url),
      RATE_LIMIT_PER_SECOND: '10',
      DRAIN_SECONDS: '0',
    });
    expect((await send(`${url}${PATH}`)).status).toBe(200);
    const [idle, slow] = [openSocket(url), openSocket(url)];
    slow.write('GET / HTTP/1.1\r\nHost: ');
    const release = await holdPages(url, database.url, { count: 1 });
    proxy.behave('silent');
    const running = send(`${url}${PATH}`);
    await until(() => proxy.unanswered() > 0, 'the request waits for the database');
    child.kill('SIGTERM');
    expect((await running).status).toBe(503);
    await expectExit();
    for (const socket of [idle, slow]) socket.destroy();
    await release();
  });
});
