/** A client that sends as fast as it can, and clients of all kinds: others are answered, and memory stays in bounds. */
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { useListeningService } from '../support/listening.js';

const PATH = '/v1/brandedPhoneNumbers';
const MEGABYTE = 2 ** 20;

setFlagsFromString('--expose-gc');
const collectGarbage: () => void = runInNewContext('gc');

const service = useListeningService({ RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1' });

async function statusOf(path: string, client: string): Promise<number> {
  const response = await fetch(`${service.url}${path}`, { headers: { 'X-Forwarded-For': client } });
  await response.arrayBuffer();
  return response.status;
}

describe('good clients are served while', () => {
  it('one client sends as fast as it can, and only its own requests are refused', async () => {
    const begin = performance.now();
    const end = begin + 5000;
    const counts = new Map<number, number>();
    const flood = Array.from({ length: 50 }, async () => {
      while (performance.now() < end) {
        const status = await statusOf(PATH, '192.0.2.1');
        counts.set(status, (counts.get(status) ?? 0) + 1);
      }
    });
    const good: number[] = [];
    while (performance.now() < end) {
      good.push(await statusOf(PATH, `203.0.113.${200 + (good.length % 20)}`));
      await sleep(50);
    }
    await Promise.all(flood);
    expect([...counts.keys()].sort()).toEqual([200, 429]);
    // Ten in any one second: those that end with the first of the requests to those that end with the last.
    expect(counts.get(200)).toBeLessThanOrEqual(10 * (1 + Math.ceil((performance.now() - begin) / 1000)));
    // One that took longer than REQUEST_TIMEOUT_SECONDS would be 503.
    expect(good).toEqual(good.map(() => 200));
  });
});

describe('nothing that a request carries', () => {
  it('grows the memory permanently', async () => {
    const mib = () => {
      collectGarbage();
      return process.memoryUsage().heapUsed / MEGABYTE;
    };
    const varied = async (from: number, count: number) => {
      for (let i = from; i < from + count; i += 50) {
        await Promise.all(
          Array.from({ length: 50 }, async (_, j) => {
            const n = i + j;
            const response = await fetch(
              `${service.url}${PATH}?internalName=name${n}&size=${1 + (n % 100)}${n % 2 ? `&x${n}=1` : ''}`,
              {
                headers: {
                  'Content-Type': `application/x-${n}`,
                  Accept: `text/x-${n}`,
                  'X-Forwarded-For': `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`,
                  'X-Request-Id': `id-${n}`,
                },
              },
            );
            await response.arrayBuffer();
          }),
        );
      }
    };
    await varied(0, 3000);
    await sleep(11_000);
    const before = mib();
    await varied(3000, 6000);
    await sleep(11_000);
    expect(mib() - before).toBeLessThan(15);
  }, 180_000);
});
