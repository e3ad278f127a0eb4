/** The size of a response's headers: above 4 KB, nginx responds with 502. */
import { once } from 'node:events';
import { Agent, get, type IncomingMessage } from 'node:http';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { writeNumbers } from '../../support/numbers.js';
import { freePort } from '../../support/port.js';
import { useService } from '../../support/service.js';
import { hasNginx, startNginx } from './nginx.js';

const MAX_BYTES = 3500;
const MAX_LINK = 2400;
const LIST = '/v1/brandedPhoneNumbers';
/** An origin with a host name of the maximum length. */
const ORIGIN = `https://${Array(4).fill('a'.repeat(62)).join('.')}.a:65535`;
/** Request headers that make all response headers but Link as long as possible. */
const longest = { Origin: ORIGIN, 'X-Request-Id': 'x'.repeat(128), 'Accept-Encoding': 'gzip' };

const settings = { CORS_ORIGINS: ORIGIN, RATE_LIMIT_PER_SECOND: '1000000', KEEP_ALIVE_SECONDS: '86400' };
const services = {
  'without PUBLIC_URL': useService(settings),
  'with PUBLIC_URL': useService({ ...settings, PUBLIC_URL: 'https://numbers.example/telephony' }),
  'with keys': useService({ ...settings, AUTH: 'api-key' }),
};
const agent = new Agent({ keepAlive: true });

beforeAll(async () => {
  for (const { databaseUrl } of Object.values(services)) await writeNumbers(databaseUrl);
});
afterAll(() => agent.destroy());

async function send(url: string, method = 'GET', headers: Record<string, string> = {}): Promise<IncomingMessage> {
  const [response] = (await once(get(url, { method, headers, agent }), 'response')) as [IncomingMessage];
  await once(response.resume(), 'end');
  return response;
}

/** Bytes from the status line to the empty line. */
function headerBytes({ statusCode, statusMessage, rawHeaders }: IncomingMessage): number {
  const lines = rawHeaders.reduce((bytes, text) => bytes + text.length + 2, 0);
  return `HTTP/1.1 ${statusCode} ${statusMessage}\r\n\r\n`.length + lines;
}

/** Returns a query that has a next page, with `bytes` of unknown internal names added. */
function queryWith(bytes: number): string {
  const [name, minBytes] = ['&internalName=', 20];
  const whole = Math.max(0, Math.floor((bytes - minBytes) / (name.length + 200)));
  const rest = bytes - whole * (name.length + 200) - name.length;
  return `?size=25&internalName=Main+Line${`${name}${'x'.repeat(200)}`.repeat(whole)}${name}${'y'.repeat(rest)}`;
}

/** Returns the argument of `queryWith` for the longest query that fits a Link header. */
async function longestQuery(url: string): Promise<number> {
  const { headers } = await send(`${url}${LIST}${queryWith(100)}`);
  return 100 + MAX_LINK - String(headers.link).length;
}

it.each(Object.entries(services).slice(0, 2))(
  `%s, a Link header of ${MAX_LINK} bytes is sent, and a longer one is omitted`,
  async (_name, service) => {
    const bytes = await longestQuery(service.url);
    const response = await send(`${service.url}${LIST}${queryWith(bytes)}`, 'GET', longest);
    expect([response.statusCode, response.headers.link?.length]).toEqual([200, MAX_LINK]);
    expect(headerBytes(response)).toBeLessThan(MAX_BYTES);
    const longer = await send(`${service.url}${LIST}${queryWith(bytes + 1)}`, 'GET', longest);
    expect([longer.statusCode, longer.headers.link]).toEqual([200, undefined]);
  },
);

describe('the headers of a response to any request', () => {
  const token = fc.stringMatching(/^[a-z-]{1,300}$/);
  const value = fc.oneof(fc.string({ unit: 'grapheme', minLength: 1, maxLength: 255 }), fc.constant('Main Line'));
  const name = fc.constantFrom('internalName', 'carrier', 'reportingGroup', 'nextCursor', 'size', 'unknown');
  const query = fc.oneof(
    fc.array(fc.tuple(name, value), { maxLength: 50 }).map((pairs) => `?${new URLSearchParams(pairs)}`),
    fc.integer({ min: 20, max: 5000 }).map(queryWith),
  );
  const headers = fc.record({
    Origin: fc.constantFrom(ORIGIN, 'https://other.example'),
    'X-Request-Id': token,
    'Accept-Encoding': fc.constantFrom('br', 'gzip', 'identity'),
    'If-None-Match': fc.constantFrom('*', '"x"'),
    Authorization: token,
    'Access-Control-Request-Method': fc.constant('GET'),
    'Access-Control-Request-Headers': fc.array(token, { maxLength: 15 }).map((names) => names.join(',')),
  });

  it(`take less than ${MAX_BYTES} bytes`, async () => {
    const statuses = new Set<number | undefined>();
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...Object.values(services)),
        fc.constantFrom('GET', 'GET', 'HEAD', 'OPTIONS', 'POST'),
        fc.constantFrom(LIST, LIST, LIST, `${LIST}/+14155550123`),
        query,
        headers,
        async ({ url }, method, path, query, sent) => {
          const response = await send(`${url}${path}${query}`, method, sent);
          statuses.add(response.statusCode);
          expect(headerBytes(response)).toBeLessThan(MAX_BYTES);
        },
      ),
      // In fewer, a status may be missing.
      { numRuns: Math.max(75, 300 * inject('tries')) },
    );
    for (const status of [200, 204, 304, 400, 401, 404, 405]) expect(statuses).toContain(status);
  });
});

it.skipIf(!hasNginx)('nginx with default settings forwards the longest response headers', async () => {
  const port = await freePort();
  const service = services['with PUBLIC_URL'];
  const stop = await startNginx(port, service.url);
  const url = `http://127.0.0.1:${port}/numbers${LIST}`;
  const bytes = await longestQuery(service.url);
  const statuses = [];
  for (const extra of [0, 1, 800, 1200, 1600]) {
    statuses.push((await send(`${url}${queryWith(bytes + extra)}`, 'GET', longest)).statusCode);
  }
  const names = { 'Access-Control-Request-Headers': `x-${'x'.repeat(2398)}` };
  const preflight = { ...longest, ...names, 'Access-Control-Request-Method': 'GET' };
  statuses.push((await send(url, 'OPTIONS', preflight)).statusCode);
  await stop();
  expect(statuses).toEqual([200, 200, 200, 200, 200, 204]);
});
