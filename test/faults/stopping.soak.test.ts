/** Stopping despite clients and a database that never finish what they have begun. */

import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { until } from '../until.js';
import { ask, codeOf, databaseUrl, PATH, serve, useCommandThatServes } from './served.js';
import { openToxicProxy } from './toxicProxy.js';

useCommandThatServes();

describe('SIGTERM', () => {
  it('is not held up by idle connections, or by clients that never finish their request', async () => {
    const { child, url } = await serve({ DRAIN_SECONDS: '0' });
    const { hostname, port } = new URL(url);
    const idle = connect(Number(port), hostname).on('error', () => {});
    const slow = connect(Number(port), hostname).on('error', () => {});
    slow.write('GET / HTTP/1.1\r\nHost: ');
    await sleep(300);
    const begin = performance.now();
    child.kill('SIGTERM');
    expect(await codeOf(child)).toBe(0);
    expect(performance.now() - begin).toBeLessThan(10_000);
    idle.destroy();
    slow.destroy();
  });

  it('ends it in time when the database hangs', async () => {
    const proxy = await openToxicProxy(Number(new URL(databaseUrl).port));
    const { child, url } = await serve({
      DATABASE_URL: proxy.through(databaseUrl),
      RATE_LIMIT_PER_SECOND: '10',
      DRAIN_SECONDS: '0',
    });
    expect((await ask(`${url}${PATH}`)).status).toBe(200);
    proxy.behave('silent');
    const running = ask(`${url}${PATH}`);
    await until(() => proxy.unanswered() > 0, 'the request has asked the database');
    const begin = performance.now();
    child.kill('SIGTERM');
    // The store of the limit hangs as well: an instance that doesn't know yet that it is the only one refuses.
    expect([429, 503]).toContain((await running).status);
    expect(await codeOf(child)).toBe(0);
    expect(performance.now() - begin).toBeLessThan(10_000);
    await proxy.close();
  });
});
