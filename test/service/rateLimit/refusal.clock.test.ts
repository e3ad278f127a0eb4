/** What a refused request may cost: few pages are begun for it, and its response does not depend on what else it asks. */
import type request from 'supertest';
import { describe, expect, it } from 'vitest';
import { createApiKey } from '../../../src/keys/keys.js';
import { connectTo } from '../../support/connection.js';
import { useCountedServices } from '../../support/countedService.js';
import { expectDescribed } from '../../support/response.js';
import { withinASecond } from '../../support/withinASecond.js';

const services = useCountedServices();
const open = (environment: Record<string, string> = {}) => services.open(environment);
let clients = 0;

function newClient(): string {
  return `203.0.113.${++clients}`;
}

const times = (count: number, get: () => PromiseLike<request.Response>) =>
  Promise.all(Array.from({ length: count }, get));

describe('the page', () => {
  it('is read once for each allowed request and for no refused one if many arrive at once', async () => {
    const { reader, get } = await open();
    await withinASecond(async () => {
      reader.reads = 0;
      const client = newClient();
      const statuses = (await times(50, () => get(client))).map(({ status }) => status);
      expect(statuses.filter((status) => status === 200)).toHaveLength(10);
      expect(statuses.filter((status) => status === 429)).toHaveLength(40);
      expect(reader.reads).toBe(10);
    });
  });

  it('is read while the request is counted, and sent after that', async () => {
    const { reader, get } = await open();
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

  it('is not read for an invalid request, although that is counted', async () => {
    const { reader, get } = await open();
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

  it('is not read for a request without a key, although that is counted', async () => {
    const { reader, get } = await open({ AUTH: 'api-key' });
    const responses = await withinASecond(async () => {
      const client = newClient();
      const all = [];
      for (let i = 0; i < 11; i++) all.push(await get(client));
      return all;
    });
    expect(responses.map(({ status }) => status)).toEqual([...Array(10).fill(401), 429]);
    expect(responses[0]?.get('RateLimit')).toBe('"default";r=9;t=1');
    expect(reader.reads).toBe(0);
    const { key } = await createApiKey(services.database, 'test');
    expect((await get(newClient()).set('Authorization', key)).status).toBe(200);
  });
});

it('refuses any request and begins few pages if the client reached its limit at another instance', async () => {
  const [first, second] = [await open(), await open()];
  const named = (response: request.Response) => ({ ...response.headers, date: '', 'x-request-id': '' });
  for (const search of ['', '?size=0', '?nope=1', '?nextCursor=x']) {
    await withinASecond(async () => {
      second.reader.reads = 0;
      const client = newClient();
      expect((await times(10, () => first.get(client))).map(({ status }) => status)).toEqual(Array(10).fill(200));
      const known = await first.get(client);
      const refused = await times(30, () => second.get(client, search));
      for (const response of refused) {
        expect([response.status, response.body, named(response)]).toEqual([429, known.body, named(known)]);
      }
      expectDescribed(known);
      expect(second.reader.reads).toBeLessThanOrEqual(search === '' ? 10 : 0);
    });
  }
});
