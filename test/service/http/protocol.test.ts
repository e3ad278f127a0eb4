/** The rules of HTTP for requests, tested with bytes that no client library sends. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { useListeningService } from '../../support/listening.js';
import { exchange, problemIn } from '../../support/rawHttp.js';

const PATH = '/v1/brandedPhoneNumbers';
const GET = `GET ${PATH} HTTP/1.1`;
const local = useListeningService();
const junk = (count: number) => Array.from({ length: count }, (_, i) => `X-Junk-${i}: ${i}`);

describe('a request that violates HTTP gets a problem', () => {
  const rows: [string, string[], number, RegExp][] = [
    ['without Host', [GET], 400, /no Host header/],
    ['with two Hosts', [GET, 'Host: localhost', 'Host: localhost'], 400, /2 Host headers/],
    ['with two different Hosts', [GET, 'Host: localhost', 'hOST: other'], 400, /2 Host headers/],
    ['with two keys', [GET, 'Host: localhost', 'Authorization: a', 'authorization: b'], 400, /2 Authorization headers/],
    ['with a target that is not an address', ['GET http://[::1/v1 HTTP/1.1', 'Host: localhost'], 400, /not an address/],
    ['with 140 headers', [GET, 'Host: localhost', ...junk(140)], 431, /142 headers; at most 100/],
    ['with 20,000 headers', [GET, 'Host: localhost', ...Array(20_000).fill('a:')], 431, /at most 100/],
    ['with a header of 200 KB', [GET, 'Host: localhost', `X-Long: ${'a'.repeat(200_000)}`], 431, /too long/],
    ['that is not HTTP', ['\x16\x03\x01 hello'], 400, /not an HTTP request/],
    ['to a proxy', ['CONNECT example.com:443 HTTP/1.1', 'Host: example.com:443'], 405, /CONNECT is not supported/],
  ];
  it.each(rows)('%s', async (_name, head, status, detail) => {
    const response = await exchange(local.url, head);
    expect(response.status).toBe(status);
    expect(response.headers['content-type']).toBe('application/problem+json; charset=utf-8');
    expect(problemIn(response)).toMatchObject({ status, detail: expect.stringMatching(detail) });
  });

  it('and does not affect the next request', async () => {
    expect((await exchange(local.url, [GET, 'Host: localhost'])).status).toBe(200);
  });
});

describe('a request that conforms to HTTP is served', () => {
  it.each([
    ['of HTTP/1.0 without Host', [`GET ${PATH} HTTP/1.0`], 200],
    ['with 90 headers', [GET, 'Host: localhost', ...junk(90)], 200],
    ['that expects 100-continue', [GET, 'Host: localhost', 'Expect: 100-continue'], 100],
    ['with an unknown expectation', [GET, 'Host: localhost', 'Expect: nonsense'], 200],
    ['with its host in its target', [`GET http://localhost${PATH} HTTP/1.1`, 'Host: localhost'], 200],
  ] as const)('%s', async (_name, head, status) => {
    const response = await exchange(local.url, [...head]);
    expect(response.status).toBe(status);
    expect(response.body).toContain('"items":[]');
  });

  it('no matter which unreserved characters of its path are percent-encoded', async () => {
    const encoded = fc
      .array(fc.boolean(), { minLength: PATH.length, maxLength: PATH.length })
      .map((isEncoded) =>
        [...PATH].map((c, i) => (isEncoded[i] && c !== '/' ? `%${c.charCodeAt(0).toString(16)}` : c)).join(''),
      );
    await fc.assert(
      fc.asyncProperty(encoded, async (path) => {
        expect((await fetch(`${local.url}${path}?carrier=AT%26T`)).status).toBe(200);
      }),
      { numRuns: 30 },
    );
  });

  it('but an encoded slash is not a slash, and a query is not changed', async () => {
    expect((await fetch(`${local.url}/v1%2FbrandedPhoneNumbers`)).status).toBe(404);
    expect((await fetch(`${local.url}${PATH}?carrier=100%25`)).status).toBe(200);
  });
});

describe('every response', () => {
  it.each([PATH, `${PATH}?size=0`, '/', '/docs', '/openapi.json', '/healthz', '/readyz', '/nowhere', '/%ZZ'])(
    'prevents browsers from guessing its type: %s',
    async (path) => {
      const { headers } = await exchange(local.url, [`GET ${path} HTTP/1.1`, 'Host: localhost']);
      expect(headers['x-content-type-options']).toBe('nosniff');
    },
  );

  it.each([
    ['GET', 'nonsense'],
    [`GET ${PATH} HTTP/1.1`, `X-Long: ${'a'.repeat(200_000)}`],
  ])('also to input that Node has no request object for', async (...head) => {
    expect((await exchange(local.url, head)).headers['x-content-type-options']).toBe('nosniff');
  });

  it.each(['/metrics', '/healthz', '/nowhere'])('also on METRICS_PORT: %s', async (path) => {
    expect((await fetch(`${local.metricsUrl}${path}`)).headers.get('X-Content-Type-Options')).toBe('nosniff');
  });
});

describe('an instance on a loopback address without API keys', () => {
  const known = useListeningService({ PUBLIC_URL: 'https://Numbers.example:8443/api/' });
  const statusFor = async (url: string, host: string) => (await exchange(url, [GET, `Host: ${host}`])).status;

  it.each(['localhost', 'LOCALHOST:3000', '127.0.0.1', '127.9.8.7:1', '[::1]:3000', '[::ffff:127.0.0.1]'])(
    'serves %s',
    async (host) => {
      expect(await statusFor(local.url, host)).toBe(200);
    },
  );

  it.each(['evil.example', 'evil.example:3000', 'localhost.evil.example', '127.0.0.1.evil.example', '10.0.0.1', ''])(
    'does not serve %s, which may be the name of a web page that points to this machine',
    async (host) => {
      const response = await exchange(local.url, [GET, `Host: ${host}`]);
      expect(response.status).toBe(421);
      expect(problemIn(response)).toMatchObject({
        type: '/problems/misdirected-request',
        detail: expect.stringContaining('PUBLIC_URL'),
      });
      expect(response.body).not.toContain('items');
    },
  );

  it('uses the host in the request target, not the one in the header', async () => {
    const response = await exchange(local.url, [`GET http://evil.example${PATH} HTTP/1.1`, 'Host: localhost']);
    expect(response.status).toBe(421);
  });

  it('does not serve other hosts on any path', async () => {
    for (const path of ['/docs', '/openapi.json', '/readyz', '/nowhere']) {
      expect((await exchange(local.url, [`GET ${path} HTTP/1.1`, 'Host: evil.example'])).status).toBe(421);
    }
  });

  it('also serves the host of PUBLIC_URL', async () => {
    expect(await statusFor(known.url, 'numbers.EXAMPLE')).toBe(200);
    expect(await statusFor(known.url, 'localhost')).toBe(200);
    expect(await statusFor(known.url, 'evil.example')).toBe(421);
  });
});

describe('an instance that other machines can use serves any host', () => {
  const settings: [Record<string, string>, number][] = [
    [{ AUTH: 'api-key' }, 401],
    [{ TRUST_PROXY: '1' }, 200],
    [{ HOST: '0.0.0.0', AUTH: 'none' }, 200],
  ];
  for (const [environment, status] of settings) {
    describe(`with ${JSON.stringify(environment)}`, () => {
      const service = useListeningService(environment);
      it('such as evil.example', async () => {
        const { port } = new URL(service.url);
        const response = await exchange(`http://127.0.0.1:${port}`, [GET, 'Host: evil.example']);
        expect(response.status).toBe(status);
      });
    });
  }
});
