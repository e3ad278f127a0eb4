/** A client that fills up a request's headers must not push out the one in which its proxy names it. */
import { expect, it } from 'vitest';
import { useListeningService } from '../support/listening.js';
import { exchange } from '../support/rawHttp.js';

const service = useListeningService({ RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1' });

/** What a proxy sends on: the client's own headers, among them a forged address, and the real one behind them. */
function throughProxy(junk: number, forged: string): string[] {
  return [
    'GET /v1/brandedPhoneNumbers HTTP/1.1',
    'Host: numbers.example',
    `X-Forwarded-For: ${forged}`,
    ...Array.from({ length: junk }, (_, i) => `X-Junk-${i}: ${i}`),
    'X-Forwarded-For: 203.0.113.66',
  ];
}

it('with as many headers as are allowed, the client is still the one that the proxy names', async () => {
  const begin = performance.now();
  const responses = await Promise.all(
    Array.from({ length: 30 }, (_, i) => exchange(service.url, throughProxy(90, `198.51.100.${i}`))),
  );
  const passed = responses.filter(({ status }) => status === 200).length;
  expect(passed).toBeLessThanOrEqual(10 * (1 + Math.ceil((performance.now() - begin) / 1000)));
  expect(responses.map(({ status }) => status)).toEqual(expect.arrayContaining([200, 429]));
});
