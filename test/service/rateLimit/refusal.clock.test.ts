/** The cost of refused requests. */
import type request from 'supertest';
import { describe, expect, it } from 'vitest';
import { createApiKey } from '../../../src/keys/keys.js';
import { connectTo } from '../../support/connection.js';
import { useCountedServices } from '../../support/countedService.js';
import { expectDescribed } from '../../support/response.js';
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
      await times(50, () => get(client));
      expect(reader.reads).toBe(10);
    });
  });

  it('is read while the request is counted, and sent once it is counted', async () => {
    const { reader, get } = await services.open();
    const client = newClient();
    await get(client);
    reader.events.length = 0;
    const holder = connectTo(services.databaseUrl);
    const { status } = await holder.begin(async (held) => {
      await held`SELECT FROM rate_limits FOR UPDATE`;
      return get(client);
    });
    await holder.end();
    expect([status, reader.events]).toEqual([200, ['read', 'late count']]);
  });

  it('is not read for an invalid request, which counts towards the limit', async () => {
    const { reader, get } = await services.open();
    await withinASecond(async () => {
      const client = newClient();
      for (const [index, search] of ['?size=0', '?nope=1', '?size=1&size=2', '?nextCursor=x'].entries()) {
        const response = await get(client, search);
        expectDescribed(response);
        expect([response.status, response.get('RateLimit')]).toEqual([400, `"default";r=${9 - index};t=1`]);
      }
      expect(reader.reads).toBe(0);
    });
  });

  it('is not read for a request without a key, which counts towards the limit', async () => {
    const { reader, get } = await services.open({ AUTH: 'api-key' });
    await withinASecond(async () => {
      const client = newClient();
      const statuses = (await times(11, () => get(client))).map(({ status }) => status);
      expect(statuses.sort()).toEqual([...Array(10).fill(401), 429]);
    });
    expect(reader.reads).toBe(0);
    const { key } = await createApiKey(services.database, 'test');
    expect((await get(newClient()).set('Authorization', key)).status).toBe(200);
  });
});

it('a client that reached its limit at another instance is refused, at the cost of few pages', async () => {
  const [first, second] = [await services.open(), await services.open()];
  const headersOf = (response: request.Response) => ({ ...response.headers, date: '', 'x-request-id': '' });
  for (const search of ['', '?size=0', '?nope=1', '?nextCursor=x']) {
    await withinASecond(async () => {
      second.reader.reads = 0;
      const client = newClient();
      expect((await times(10, () => first.get(client))).map(({ status }) => status)).toEqual(Array(10).fill(200));
      const expected = await first.get(client);
      const refused = await times(30, () => second.get(client, search));
      for (const response of refused) {
        expect([response.status, response.body]).toEqual([429, expected.body]);
        expect(headersOf(response)).toEqual(headersOf(expected));
      }
      expect(second.reader.reads).toBeLessThanOrEqual(search === '' ? 10 : 0);
    });
  }
});
