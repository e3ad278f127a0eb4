import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { exchange, problemIn } from '../../support/rawHttp.js';
import { useService } from '../../support/service.js';

const PATH = '/v1/brandedPhoneNumbers';
const GET = `GET ${PATH} HTTP/1.1`;
const local = useService();
/** The head of a request with so many bytes of address and headers, without those between them. */
const headOf = (bytes: number) => [
  GET,
  'Host: localhost',
  `X: ${'a'.repeat(bytes - `${PATH}HostlocalhostXConnectionclose`.length)}`,
];
const junk = (count: number) => Array.from({ length: count }, (_, i) => `X-Junk-${i}: ${i}`);

describe('a request that violates HTTP gets a problem', () => {
  // Node 22.23 refuses too many headers by itself.
  const rows: [string, string[], number, RegExp][] = [
    ['without Host', [GET], 400, /no Host header/],
    ['with two Hosts', [GET, 'Host: localhost', 'Host: localhost'], 400, /2 Host headers/],
    ['with two different Hosts', [GET, 'Host: localhost', 'hOST: other'], 400, /2 Host headers/],
    [
      'with two credentials',
      [GET, 'Host: localhost', 'Authorization: a', 'authorization: b'],
      400,
      /2 Authorization headers/,
    ],
    ['with a target that is not a URL', ['GET http://[::1/v1 HTTP/1.1', 'Host: localhost'], 400, /not an address/],
    ['with 140 headers', [GET, 'Host: localhost', ...junk(140)], 431, /100/],
    ['with 4,000 headers', [GET, 'Host: localhost', ...Array(4000).fill('a:')], 431, /100/],
    ['with 16 KB of address and headers', headOf(16_384), 431, /16 KB/],
    ['for a page at *', ['GET * HTTP/1.1', 'Host: localhost', 'Accept: text/html'], 404, /nothing at [*]/],
    [
      'for a page at a long path',
      [`GET ${'/'.repeat(15_000)} HTTP/1.1`, 'Host: localhost', 'Accept: text/html'],
      404,
      /nothing at/,
    ],
    ['that is not HTTP', ['\x16\x03\x01 hello'], 400, /not an HTTP request/],
  ];
  it.each(rows)('%s', async (_name, head, status, detail) => {
    const response = await exchange(local.url, head);
    expect(response.status).toBe(status);
    expect(response.headers).toMatchObject({
      'content-type': 'application/problem+json; charset=utf-8',
      'x-content-type-options': 'nosniff',
    });
    expect(response.headers).not.toHaveProperty('etag');
    expect(problemIn(response)).toMatchObject({ status, detail: expect.stringMatching(detail) });
  });
});

describe('a request that conforms to HTTP', () => {
  it.each([
    ['HTTP/1.0 and no Host', [`GET ${PATH} HTTP/1.0`], 200],
    ['Expect: 100-continue', [GET, 'Host: localhost', 'Expect: 100-continue'], 100],
    ['an unknown expectation', [GET, 'Host: localhost', 'Expect: nonsense'], 200],
    ['an absolute URL as its target', [`GET http://localhost${PATH} HTTP/1.1`, 'Host: localhost'], 200],
    ['a byte less than 16 KB of address and headers', headOf(16_383), 200],
  ] as const)('is served with %s', async (_name, head, status) => {
    const response = await exchange(local.url, [...head]);
    expect(response.status).toBe(status);
    expect(response.body).toContain('"items":[]');
  });

  // Proxies append the client's address as the last header.
  it('is served with 100 headers, even the last of which is read', async () => {
    const head = [GET, 'Host: localhost', ...junk(97), 'X-Request-Id: the-last'];
    const { status, headers } = await exchange(local.url, head);
    expect([status, headers['x-request-id']]).toEqual([200, 'the-last']);
  });

  it('is served with any unreserved characters of its path percent-encoded', async () => {
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

  it('keeps an encoded slash in its path and the encoding of its query', async () => {
    expect((await fetch(`${local.url}/v1%2FbrandedPhoneNumbers`)).status).toBe(404);
    expect((await fetch(`${local.url}${PATH}?carrier=100%25`)).status).toBe(200);
  });
});

describe('X-Content-Type-Options: nosniff is sent', () => {
  it.each(['/', '/docs', '/openapi.json', '/healthz', '/readyz', '/%ZZ', PATH])('with %s', async (path) => {
    const { headers } = await exchange(local.url, [`GET ${path} HTTP/1.1`, 'Host: localhost']);
    expect(headers['x-content-type-options']).toBe('nosniff');
  });

  it.each(['/metrics', '/healthz', '/nowhere'])('with %s on METRICS_PORT', async (path) => {
    expect((await fetch(`${local.metricsUrl}${path}`)).headers.get('X-Content-Type-Options')).toBe('nosniff');
  });
});

describe('an instance on a loopback address without API keys', () => {
  const withPublicUrl = useService({ PUBLIC_URL: 'https://Numbers.example:8443/api/' });
  const statusFor = async (url: string, host: string) => (await exchange(url, [GET, `Host: ${host}`])).status;

  it.each(['localhost', 'LOCALHOST:3000', '127.0.0.1', '127.9.8.7:1', '[::1]:3000', '[::ffff:127.0.0.1]'])(
    'serves the host %s',
    async (host) => {
      expect(await statusFor(local.url, host)).toBe(200);
    },
  );

  // Someone else's web page may have a host name that resolves to this machine.
  it.each([
    ...['evil.example', 'evil.example:3000', 'localhost.evil.example', '127.0.0.1.evil.example', '10.0.0.1', ''].map(
      (host) => [GET, `Host: ${host}`],
    ),
    [`GET http://evil.example${PATH} HTTP/1.1`, 'Host: localhost'],
    ...['/docs', '/openapi.json', '/readyz', '/nowhere'].map((path) => [`GET ${path} HTTP/1.1`, 'Host: evil.example']),
  ])('rejects another host: %s, %s', async (...head) => {
    expect(problemIn(await exchange(local.url, head))).toMatchObject({
      status: 421,
      type: '/problems/misdirected-request',
      detail: expect.stringContaining('PUBLIC_URL'),
    });
  });

  it('also serves the host of PUBLIC_URL', async () => {
    expect(await statusFor(withPublicUrl.url, 'numbers.EXAMPLE')).toBe(200);
    expect(await statusFor(withPublicUrl.url, 'localhost')).toBe(200);
    expect(await statusFor(withPublicUrl.url, 'evil.example')).toBe(421);
  });
});

describe.each<[Record<string, string>, number]>([
  [{ AUTH: 'api-key' }, 401],
  [{ TRUST_PROXY: '1' }, 200],
  [{ HOST: '0.0.0.0', AUTH: 'none' }, 200],
])('an instance with %o', (environment, status) => {
  const service = useService(environment);
  it('serves any host', async () => {
    const url = service.url.replace('0.0.0.0', '127.0.0.1');
    expect((await exchange(url, [GET, 'Host: evil.example'])).status).toBe(status);
  });
});
