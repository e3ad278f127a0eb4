/** Stopping: no request fails, and the service ends in time. The command itself, as an operator runs it. */

import { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { until } from '../until.js';
import { ask, codeOf, PATH, serve, useCommandThatServes } from './served.js';

useCommandThatServes();

describe('SIGTERM', () => {
  it('makes it unready at once, fails none of the requests, and ends it with 0 within 10 seconds', async () => {
    const { child, url } = await serve();
    const agent = new Agent({ keepAlive: true, maxSockets: 20 });
    const answers: { status: number | undefined; ends: boolean }[] = [];
    // As a load balancer does: reuses no connection whose end was announced, and sends nothing once it is unready.
    let isReady = true;
    const load = Array.from({ length: 20 }, async () => {
      while (isReady) answers.push(await ask(`${url}${PATH}`, agent));
    });
    await until(() => answers.length > 50, '50 requests are answered');
    const begin = performance.now();
    child.kill('SIGTERM');
    await until(async () => (await ask(`${url}/readyz`)).status === 503, 'it is unready');
    expect((await ask(`${url}/healthz`)).status).toBe(200);
    expect(await ask(`${url}${PATH}`, agent)).toEqual({ status: 200, ends: true });
    await sleep(500);
    isReady = false;
    await Promise.all(load);
    expect(await codeOf(child)).toBe(0);
    expect(performance.now() - begin).toBeLessThan(10_000);
    expect([...new Set(answers.map(({ status }) => status))]).toEqual([200]);
  });
});
