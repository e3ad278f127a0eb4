/** Which address counts as the client behind proxies. Each test uses addresses with an unused limit. */
import request from 'supertest';
import { describe, expect, it } from 'vitest';
import { type TestService, useService } from '../support/service.js';
import { withinASecond } from '../support/withinASecond.js';

/** Sends a request with each `X-Forwarded-For` in turn; returns the client's remaining requests after each. */
const remainingOf = ({ url }: TestService, ...forwarded: string[]) =>
  withinASecond(async () => {
    const remaining: number[] = [];
    for (const value of forwarded) {
      const response = await request(url).get('/v1/brandedPhoneNumbers').set('X-Forwarded-For', value);
      remaining.push(Number(/r=(\d+)/.exec(response.get('RateLimit') ?? '')?.[1]));
    }
    return remaining;
  });

const services = ['0', '1', '2'].map((TRUST_PROXY) => useService({ RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY }));

it.each([
  [0, 'ignores X-Forwarded-For', ['203.0.113.1', '203.0.113.2'], [9, 8]],
  [2, 'takes the address that the outer proxy appended', ['203.0.113.1, ::1', '::2, 203.0.113.1, ::3'], [9, 8]],
  [
    1,
    'takes the address that the proxy appended, whatever the client sent before it',
    ['203.0.113.1', '10.0.0.1, 203.0.113.1', '192.0.2.7, 127.0.0.1, 203.0.113.1', '203.0.113.2'],
    [9, 8, 7, 9],
  ],
  [1, 'counts IPv6 clients by network (/64)', ['2001:db8:1:2:3:4:5:6', '2001:DB8:1:2::', '2001:db8:1:3::'], [9, 8, 9]],
  [1, 'ignores the zone of a link-local address', ['fe80::1%eth0', 'fe80::2%a-b.c', 'fe80::3'], [9, 8, 7]],
  [
    1,
    'recognizes an IPv4 address that is written as IPv6',
    ['203.0.113.9', '::ffff:203.0.113.9', '::ffff:cb00:7109', '0:0:0:0:0:FFFF:CB00:7109'],
    [9, 8, 7, 6],
  ],
  [1, 'ignores the port of an address', ['203.0.113.3:51000', '203.0.113.3:51001', '203.0.113.3'], [9, 8, 7]],
  [
    1,
    'ignores the brackets of an address, and the port after them',
    ['[2001:db8:7:7::7]:443', '[2001:db8:7:7::9]', '2001:db8:7:7::8', '2001:db8:7:7::\t'],
    [9, 8, 7, 6],
  ],
  [
    1,
    'counts all entries that are not addresses as one client',
    ['x'.repeat(10_000), 'y'.repeat(10_000), '203.0.113.4'],
    [9, 8, 9],
  ],
])('TRUST_PROXY=%s %s', async (proxies, _what, forwarded, remaining) => {
  expect(await remainingOf(services[proxies] as TestService, ...forwarded)).toEqual(remaining);
});

describe('TRUST_PROXY with addresses', () => {
  const service = useService({ RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: 'loopback,10.0.0.0/8,fd00::/8' });
  let clients = 0;
  const newClient = () => `198.51.100.${++clients}`;
  it('takes the last address that is not a proxy', async () => {
    const same = ['203.0.113.1, 10.0.0.1, 10.9.9.9', '10.1.1.1, 203.0.113.1, 10.0.0.3'];
    expect(await remainingOf(service, ...same)).toEqual([9, 8]);
  });

  it.each(['10.0.0.1:51000', '::ffff:10.0.0.1', '[fd00::1]:443', 'fd00::1', 'fd00::1%eth0', '\t10.0.0.1\t'])(
    'recognizes the address of a proxy in the form %o',
    async (proxy) => {
      const client = newClient();
      const entries = [`${client}:4711, ${proxy}`, `${client},${proxy},10.0.0.2:80`, client];
      expect(await remainingOf(service, ...entries, `${newClient()}:4711, ${proxy}`)).toEqual([9, 8, 7, 9]);
    },
  );

  it('evaluates 20 proxies, and takes the entry before them whatever it is', async () => {
    const behind = (length: number, ...first: string[]) => [...first, ...Array(length).fill('10.0.0.1')].join();
    const client = newClient();
    // The test connects from the first of them.
    const same = [behind(18, client), behind(19, client), behind(19, newClient(), client)];
    expect(await remainingOf(service, ...same)).toEqual([9, 8, 7]);
    const proxy = '10.7.7.7';
    const many = [behind(19, newClient(), proxy), behind(19, newClient(), proxy), behind(1500, newClient())];
    expect(await remainingOf(service, ...many)).toEqual([9, 8, 9]);
  });
});
