/** The cost of refused requests. */
import type request from 'supertest';
import { describe, expect, it } from 'vitest';
import { whileLocked } from '../../support/connection.js';
import { useCountedServices } from '../../support/countedService.js';
import { until } from '../../support/until.js';
import { withinASecond } from '../../support/withinASecond.js';

const services = useCountedServices();
let clients = 0;
const newClient = () => `203.0.113.${++clients}`;

const times = (count: number, get: () => PromiseLike<request.Response>) =>
  Promise.all(Array.from({ length: count }, get));

describe('the page', () => {
  it('is read for each allowed request, and for none of the refused ones that arrive with them', async () => {
    const { reader, get } = await services.open();
    await withinASecond(async () => {
      reader.reads = 0;
      const client = newClient();
      await times(20, () => get(client));
      expect(reader.reads).toBe(10);
    });
  });

  it('is read while the request is counted, and sent once it is counted', async () => {
    const { reader, get } = await services.open();
    const client = newClient();
    await get(client);
    reader.events.length = 0;
    const lock = 'SELECT FROM rate_limits FOR UPDATE';
    const { status } = await whileLocked(services.databaseUrl, lock, async () => get(client));
    expect([status, reader.events]).toEqual([200, ['read', 'late count']]);
  });

  it.each([
    [400, '?size=0', {}],
    [400, '?nope=1', {}],
    [400, '?size=1&size=2', {}],
    [400, '?nextCursor=x', {}],
    [401, '', { AUTH: 'api-key' }],
    [405, '', {}],
  ])('is not read for a request that gets a %i: "%s"', async (status, search, settings) => {
    const { reader, get } = await services.open(settings);
    const sending = get(newClient(), search);
    if (status === 405) sending.method = 'POST';
    expect((await sending).status).toBe(status);
    expect(reader.reads).toBe(0);
  });

  it.each(['client disconnects', 'request is refused'])('leaves the queue if its %s', async (reason) => {
    const [first, second] = [await services.open(), await services.open()];
    const { reader } = second;
    const url = await second.listen();
    await whileLocked(services.databaseUrl, 'LOCK business_profiles', async () => {
      // As many reads as are sent at once.
      void times(30, () => second.get(newClient()));
      await until(() => reader.reads === 30);
      await withinASecond(async () => {
        reader.events.length = 0;
        const client = newClient();
        const isRefused = reason === 'request is refused';
        if (isRefused) await times(10, () => first.get(client, '?size=0'));
        const disconnect = new AbortController();
        const status = fetch(url, { headers: { 'X-Forwarded-For': client }, signal: disconnect.signal }).then(
          (response) => response.status,
          () => 'disconnected',
        );
        await until(() => reader.events.length > 0);
        if (!isRefused) disconnect.abort();
        expect(await status).toBe(isRefused ? 429 : 'disconnected');
        await until(() => reader.events.length === 2);
        expect(reader.events).toEqual(['read', 'The request was abandoned.']);
      });
    });
  });
});

it('a client that reached its limit at another instance is refused, and few pages are read for it', async () => {
  const [first, second] = [await services.open(), await services.open()];
  const headersOf = (response: request.Response) => ({ ...response.headers, date: '', 'x-request-id': '' });
  for (const search of ['', '?size=0', '?nope=1', '?nextCursor=x']) {
    await withinASecond(async () => {
      second.reader.reads = 0;
      const client = newClient();
      expect((await times(10, () => first.get(client))).map(({ status }) => status)).toEqual(Array(10).fill(200));
      const expected = await first.get(client);
      const refused = await times(15, () => second.get(client, search));
      for (const response of refused) {
        expect([response.status, response.body]).toEqual([429, expected.body]);
        expect(headersOf(response)).toEqual(headersOf(expected));
      }
      expect(second.reader.reads).toBeLessThanOrEqual(search === '' ? 10 : 0);
    });
  }
});
