/** Web pages of other origins that call the API from a browser. */
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
    request(service.app).options(PATH).set({
      Origin: origin,
      'Access-Control-Request-Method': 'GET',
      'Access-Control-Request-Headers': headers,
    });

  it('a page of a listed origin may read responses and the headers that clients need', async () => {
    const response = await request(service.app).get(PATH).set('Origin', ORIGIN);
    expect(response.status).toBe(200);
    expect(corsHeaders(response)).toEqual({
      'access-control-allow-origin': ORIGIN,
      'access-control-expose-headers': 'Link,ETag,RateLimit,RateLimit-Policy,Retry-After,X-Request-Id',
    });
    expect(response.get('Vary')).toBe('Origin, Authorization, Accept-Encoding');
  });

  it('a page of a listed origin may also read problems', async () => {
    const response = await request(service.app).get(`${PATH}?size=0`).set('Origin', ORIGIN);
    expect([response.status, corsHeaders(response)['access-control-allow-origin']]).toEqual([400, ORIGIN]);
  });

  it('a preflight of a listed origin succeeds and is not counted by the rate limit', async () => {
    for (let i = 0; i < 12; i++) {
      const response = await preflight(ORIGIN);
      expect(response.status).toBe(204);
      expect(corsHeaders(response)).toMatchObject({
        'access-control-allow-origin': ORIGIN,
        'access-control-allow-methods': 'GET,HEAD',
        'access-control-allow-headers': 'authorization',
      });
    }
  });

  it('a page of a listed origin may send any header, and caches store its preflights separately', async () => {
    for (const headers of ['authorization,baggage,traceparent,x-requested-with', `x-${'a'.repeat(2000)}`]) {
      const response = await preflight(ORIGIN, headers);
      expect([response.status, corsHeaders(response)['access-control-allow-headers']]).toEqual([204, headers]);
      expect(response.get('Vary')).toBe('Origin, Access-Control-Request-Headers');
    }
    // Such names would be repeated in more bytes than a proxy takes.
    expect((await preflight(ORIGIN, `x-${'a'.repeat(3000)}`)).status).toBe(405);
  });

  it('a page of any other origin may read nothing, and its preflight is rejected', async () => {
    const response = await request(service.app).get(PATH).set('Origin', 'https://evil.example.com');
    expect(corsHeaders(response)['access-control-allow-origin']).toBeUndefined();
    const refused = await preflight('https://evil.example.com');
    expect([refused.status, corsHeaders(refused)]).toEqual([405, {}]);
  });

  it('an OPTIONS that is not a preflight gets a 405', async () => {
    expect((await request(service.app).options(PATH).set('Origin', ORIGIN)).status).toBe(405);
  });
});

describe('without CORS_ORIGINS', () => {
  const service = useService();
  it('a page of another origin may read nothing', async () => {
    const response = await request(service.app).get(PATH).set('Origin', ORIGIN);
    expect([corsHeaders(response), response.get('Vary')]).toEqual([{}, 'Authorization, Accept-Encoding']);
    expect((await request(service.app).options(PATH).set('Origin', ORIGIN)).status).toBe(405);
  });
});
