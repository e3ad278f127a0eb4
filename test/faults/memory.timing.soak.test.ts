import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { collectGarbage } from '../support/garbage.js';
import { useService } from '../support/service.js';

/** Returns 150 names of the maximum length, unlike those of any other request. */
function longNames(n: number): string {
  const names = Array.from({ length: 50 }, (_, index) => `${n}-${index}-`.padEnd(255, 'x'));
  return ['internalName', 'reportingGroup', 'carrier']
    .flatMap((name) => names.map((value) => `${name}=${value}`))
    .join('&');
}

const service = useService({ RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1' });

it('6,000 different requests leave less than 15 MB of heap in use', async () => {
  const heapMegabytes = () => {
    collectGarbage();
    return process.memoryUsage().heapUsed / 2 ** 20;
  };
  async function send(n: number): Promise<void> {
    const names = n % 10 ? `internalName=name${n}` : longNames(n);
    const search = `${names}&size=${1 + (n % 100)}${n % 4 === 1 ? `&x${n}=1` : ''}`;
    const headers = {
      'Content-Type': `application/x-${n}`,
      Accept: `text/x-${n}`,
      'X-Forwarded-For': `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`,
      'X-Request-Id': `id-${n}`,
    };
    const response = await fetch(`${service.url}/v1/brandedPhoneNumbers?${search}`, { headers });
    await response.arrayBuffer();
  }
  async function sendMany(from: number, to: number): Promise<void> {
    for (let i = from; i < to; i += 50) await Promise.all(Array.from({ length: 50 }, (_, j) => send(i + j)));
    await sleep(11_000);
  }
  await sendMany(0, 3000);
  const before = heapMegabytes();
  await sendMany(3000, 9000);
  expect(heapMegabytes() - before).toBeLessThan(15);
}, 180_000);
