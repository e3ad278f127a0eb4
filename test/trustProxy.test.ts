import request from 'supertest';
import { beforeEach, describe, expect, it } from 'vitest';
import { type TestService, useService } from './service.js';

const PATH = '/v1/brandedPhoneNumbers';
beforeEach(() => new Promise((resolve) => setTimeout(resolve, 1050)));

/** The requests left to whoever the service takes the sender to be. */
async function leftOf({ app }: TestService, forwarded: string): Promise<number> {
  const response = await request(app).get(PATH).set('X-Forwarded-For', forwarded);
  return Number(/r=(\d+)/.exec(response.get('RateLimit') ?? '')?.[1]);
}

describe('without a trusted proxy', () => {
  const service = useService({ RATE_LIMIT_PER_SECOND: '10' });
  it('X-Forwarded-For changes nothing', async () => {
    expect(await leftOf(service, '203.0.113.1')).toBe(9);
    expect(await leftOf(service, '203.0.113.2')).toBe(8);
  });
});

describe('behind one proxy', () => {
  const service = useService({ RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1' });
  it('the client is whom the proxy names, whatever the client has put before it', async () => {
    expect(await leftOf(service, '203.0.113.1')).toBe(9);
    expect(await leftOf(service, '10.0.0.1, 203.0.113.1')).toBe(8);
    expect(await leftOf(service, '192.0.2.7, 127.0.0.1, 203.0.113.1')).toBe(7);
    expect(await leftOf(service, '203.0.113.2')).toBe(9);
  });

  it('IPv6 clients are their /64', async () => {
    expect(await leftOf(service, '2001:db8:1:2:3:4:5:6')).toBe(9);
    expect(await leftOf(service, '2001:DB8:1:2::')).toBe(8);
    expect(await leftOf(service, '2001:db8:1:3::')).toBe(9);
  });

  it('an IPv4 client is the same when written as IPv6', async () => {
    expect(await leftOf(service, '203.0.113.9')).toBe(9);
    expect(await leftOf(service, '::ffff:203.0.113.9')).toBe(8);
  });

  it('a client is the same whatever port it is named with', async () => {
    expect(await leftOf(service, '203.0.113.1:51000')).toBe(9);
    expect(await leftOf(service, '203.0.113.1:51001')).toBe(8);
    expect(await leftOf(service, '203.0.113.1')).toBe(7);
    expect(await leftOf(service, '[2001:db8:1:2::7]:443')).toBe(9);
    expect(await leftOf(service, '2001:db8:1:2::8')).toBe(8);
  });

  it('what is no address is one client, and disturbs nobody else', async () => {
    expect(await leftOf(service, 'x'.repeat(10_000))).toBe(9);
    expect(await leftOf(service, 'y'.repeat(10_000))).toBe(8);
    expect(await leftOf(service, '203.0.113.1')).toBe(9);
  });
});

describe('behind two proxies', () => {
  const service = useService({ RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '2' });
  it('only what the outer one has written counts', async () => {
    expect(await leftOf(service, '203.0.113.1, 10.0.0.1')).toBe(9);
    expect(await leftOf(service, '198.51.100.1, 203.0.113.1, 10.0.0.2')).toBe(8);
  });
});

describe('behind proxies known by their addresses', () => {
  const service = useService({ RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: 'loopback,10.0.0.0/8' });
  it('the client is the first address from the right that is none of them', async () => {
    expect(await leftOf(service, '203.0.113.1, 10.0.0.1, 10.9.9.9')).toBe(9);
    expect(await leftOf(service, '10.1.1.1, 203.0.113.1, 10.0.0.3')).toBe(8);
  });
});
