import request from 'supertest';
import { describe, expect, it } from 'vitest';
import { useService } from '../../support/service.js';

const PATH = '/v1/brandedPhoneNumbers';
const ORIGIN = 'https://app.example.com';
const corsHeaders = ({ headers }: request.Response) =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith('access-control-')));

describe('with CORS_ORIGINS', () => {
  const service = useService({ CORS_ORIGINS: `${ORIGIN}, https://other.example.com`, RATE_LIMIT_PER_SECOND: '10' });
  const preflight = (origin: string, headers = 'authorization') =>
    request(service.url).options(PATH).set({
      Origin: origin,
      'Access-Control-Request-Method': 'GET',
      'Access-Control-Request-Headers': headers,
    });

  it.each([
    ['a list', '', 200, 'Origin, Authorization, Accept-Encoding'],
    ['a problem', '?size=0', 400, expect.stringContaining('Origin')],
  ])(
    'lets a page of a listed origin read %s and the headers that clients need',
    async (_name, search, status, vary) => {
      const response = await request(service.url).get(`${PATH}${search}`).set('Origin', ORIGIN);
      expect([response.status, response.get('Vary')]).toEqual([status, vary]);
      expect(corsHeaders(response)).toEqual({
        'access-control-allow-origin': ORIGIN,
        'access-control-expose-headers': 'Link,ETag,RateLimit,RateLimit-Policy,Retry-After,X-Request-Id',
      });
    },
  );

  it.each([
    ['several headers', 'authorization,baggage,traceparent,x-requested-with'],
    ['a long header', `x-${'a'.repeat(2000)}`],
  ])(
    'accepts a preflight from a listed origin with %s, and does not count it towards the rate limit',
    async (_name, headers) => {
      for (let i = 0; i < 12; i++) {
        const response = await preflight(ORIGIN, headers);
        expect([response.status, response.get('Vary')]).toEqual([204, 'Origin, Access-Control-Request-Headers']);
        expect(corsHeaders(response)).toMatchObject({
          'access-control-allow-origin': ORIGIN,
          'access-control-allow-methods': 'GET,HEAD',
          'access-control-allow-headers': headers,
        });
      }
    },
  );

  it('rejects a preflight with headers that exceed the header buffer of proxies', async () => {
    expect((await preflight(ORIGIN, `x-${'a'.repeat(3000)}`)).status).toBe(405);
  });

  it('does not let a page of an unlisted origin read a response, and rejects its preflight', async () => {
    const response = await request(service.url).get(PATH).set('Origin', 'https://evil.example.com');
    expect(corsHeaders(response)['access-control-allow-origin']).toBeUndefined();
    const rejected = await preflight('https://evil.example.com');
    expect([rejected.status, corsHeaders(rejected)]).toEqual([405, {}]);
  });

  it('rejects an OPTIONS that is not a preflight', async () => {
    expect((await request(service.url).options(PATH).set('Origin', ORIGIN)).status).toBe(405);
  });
});

const withoutOrigins = useService();
it('a service without CORS_ORIGINS lets no page of another origin read a response', async () => {
  const response = await request(withoutOrigins.url).get(PATH).set('Origin', ORIGIN);
  expect([corsHeaders(response), response.get('Vary')]).toEqual([{}, 'Authorization, Accept-Encoding']);
});
