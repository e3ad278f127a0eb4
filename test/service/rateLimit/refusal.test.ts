/** The cost of refused requests. */
import { once } from 'node:events';
import { get } from 'node:http';
import { pino } from 'pino';
import type request from 'supertest';
import { describe, expect, it } from 'vitest';
import type { Log } from '../../../src/log.js';
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
    const { read, get } = await services.open();
    await withinASecond(async () => {
      read.mockClear();
      const client = newClient();
      await times(20, () => get(client));
      expect(read).toHaveBeenCalledTimes(10);
    });
  });

  it('is read while the request is counted, and sent once it is counted', async () => {
    // A line is logged when the store does not count a request in time.
    const readsBefore: number[] = [];
    const log = pino({ level: 'error' }, { write: () => void readsBefore.push(read.mock.calls.length) });
    const { read, get } = await services.open({}, log as Log);
    const client = newClient();
    await get(client);
    read.mockClear();
    const lock = 'SELECT FROM rate_limits FOR UPDATE';
    const { status } = await whileLocked(services.database.url, lock, async () => get(client));
    expect([status, readsBefore]).toEqual([200, [1]]);
  });

  it.each([
    [400, '?size=0', {}],
    [400, '?nope=1', {}],
    [400, '?size=1&size=2', {}],
    [400, '?nextCursor=x', {}],
    [401, '', { AUTH: 'api-key' }],
    [405, '', {}],
  ])('is not read for a request that gets a %i: "%s"', async (status, search, settings) => {
    const { read, get } = await services.open(settings);
    const sending = get(newClient(), search);
    if (status === 405) sending.method = 'POST';
    expect((await sending).status).toBe(status);
    expect(read).not.toHaveBeenCalled();
  });

  it.each(['client disconnects', 'request is refused'])('leaves the queue if its %s', async (reason) => {
    const [first, second] = [await services.open(), await services.open({ DATABASE_CONNECTIONS: '2' })];
    const { read, list } = second;
    const burst = async () => {
      read.mockClear();
      // As many reads as are sent at once.
      void times(8, () => second.get(newClient()));
      await until(() => read.mock.calls.length === 8);
      const client = newClient();
      const isRefused = reason === 'request is refused';
      if (isRefused) await times(10, () => first.get(client, '?size=0'));
      const sent = get(list, { headers: { 'X-Forwarded-For': client } });
      const status = once(sent, 'response').then(
        ([response]) => response.resume().statusCode,
        () => 'disconnected',
      );
      await until(() => read.mock.calls.length === 9);
      // A client that only closes its sending side still gets its response.
      if (!isRefused) sent.socket?.resetAndDestroy();
      expect(await status).toBe(isRefused ? 429 : 'disconnected');
      await expect(read.mock.results[8]?.value).rejects.toThrow('The request was abandoned.');
    };
    // A read that can't be sent within half a second leaves the queue, too.
    const limitMs = 450;
    await whileLocked(services.database.url, 'LOCK business_profiles', () => withinASecond(burst, { limitMs }));
  });
});

it('a client that reached its limit at another instance is refused, and few pages are read for it', async () => {
  const [first, second] = [await services.open(), await services.open()];
  const headersOf = (response: request.Response) => ({ ...response.headers, date: '', 'x-request-id': '' });
  for (const search of ['', '?size=0', '?nope=1', '?nextCursor=x']) {
    await withinASecond(async () => {
      second.read.mockClear();
      const client = newClient();
      expect((await times(10, () => first.get(client))).map(({ status }) => status)).toEqual(Array(10).fill(200));
      const expected = await first.get(client);
      const refused = await times(15, () => second.get(client, search));
      for (const response of refused) {
        expect([response.status, response.body]).toEqual([429, expected.body]);
        expect(headersOf(response)).toEqual(headersOf(expected));
      }
      expect(second.read.mock.calls.length).toBeLessThanOrEqual(search === '' ? 10 : 0);
    });
  }
});
