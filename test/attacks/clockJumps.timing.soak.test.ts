/** The store's clock jumps forward by an hour. In test/service/rateLimit/stores.test.ts, it is set back. */
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, it, type TestContext } from 'vitest';
import { openLog } from '../../src/log.js';
import { createMetrics } from '../../src/metrics.js';
import { RateLimiter } from '../../src/service/rateLimit/limiter.js';
import { LIMIT, startStoreServer } from '../service/rateLimit/storeServer.js';
import { hasRedis } from '../support/redis.js';
import { mostInASecond, type TimedResponse } from '../support/timedResponses.js';

/** libfaketime of Debian, and libc, because the allocator of Redis reads the time before libfaketime is ready. */
const [faketime, libc] = ['*/libfaketime.so.1', '*/libc.so.6'].map((path) =>
  execFileSync('find', ['/usr/lib', '-path', path], { encoding: 'utf8' }).split('\n').find(Boolean),
);
const isRunnable = hasRedis && faketime !== undefined && libc !== undefined;
if (!isRunnable && process.env.SKIP_NOTHING) throw new Error('faketime is not installed');

/** Starts a server with a clock that `jump` sets forward by an hour, and with a steady monotonic clock. */
async function startWithClock(kind: string, onTestFinished: TestContext['onTestFinished']) {
  const folder = mkdtempSync(join(tmpdir(), 'branded-phone-numbers-clock-'));
  const file = join(folder, 'offset');
  writeFileSync(file, '+0\n');
  chmodSync(folder, 0o755);
  const environment = {
    LD_PRELOAD: `${faketime} ${libc}`,
    FAKETIME_TIMESTAMP_FILE: file,
    FAKETIME_NO_CACHE: '1',
    FAKETIME_DONT_FAKE_MONOTONIC: '1',
  };
  Object.assign(process.env, environment);
  try {
    const server = await startStoreServer(kind);
    onTestFinished(() => server.close());
    return { server, jump: () => writeFileSync(file, '+3600\n') };
  } finally {
    for (const name of Object.keys(environment)) delete process.env[name];
  }
}

describe.skipIf(!isRunnable).each(['PostgreSQL', 'Redis'])('when the clock of %s jumps, the rate limit', (kind) => {
  it('is enforced, and blocks no client for longer than a second', async ({ expect, onTestFinished }) => {
    const { server, jump } = await startWithClock(kind, onTestFinished);
    const limiters = [1, 2].map(
      () => new RateLimiter(server.open(server.port), LIMIT, openLog({ LOG_LEVEL: 'silent' }), createMetrics(1)),
    );
    for (const limiter of limiters) {
      onTestFinished(() => limiter.close());
      await limiter.warmUp();
    }
    const responses: TimedResponse[] = [];
    const send = async (limiter: RateLimiter | undefined) => {
      const sentAt = performance.now();
      const decision = await limiter?.count('client').decision;
      responses.push({ sentAt, endedAt: performance.now(), status: decision?.allowed ? 200 : 429 });
    };
    const begin = performance.now();
    const sending = setInterval(() => void send(limiters[responses.length % 2]), 15);
    await sleep(2500);
    jump();
    await sleep(4500);
    clearInterval(sending);
    await sleep(500);
    // After the jump, the store ignores the requests before it.
    expect(mostInASecond(responses)).toBeLessThanOrEqual(2 * LIMIT);
    for (const from of [0, 4500]) {
      const settled = responses.filter(({ sentAt }) => sentAt >= begin + from && sentAt < begin + from + 2500);
      expect(mostInASecond(settled)).toBeLessThanOrEqual(LIMIT);
      expect(settled.filter(({ status }) => status === 200).length).toBeGreaterThanOrEqual(1.5 * LIMIT);
    }
  });
});
