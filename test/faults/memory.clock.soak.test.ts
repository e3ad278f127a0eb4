import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, it } from 'vitest';
import { useListeningService } from '../support/listening.js';

setFlagsFromString('--expose-gc');
const collectGarbage: () => void = runInNewContext('gc');

const service = useListeningService({ RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1' });

it('6,000 different requests leave less than 15 MB of heap in use', async () => {
  const heapMegabytes = () => {
    collectGarbage();
    return process.memoryUsage().heapUsed / 2 ** 20;
  };
  async function send(n: number): Promise<void> {
    const search = `internalName=name${n}&size=${1 + (n % 100)}${n % 2 ? `&x${n}=1` : ''}`;
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
