/** What a refused request may cost: no page is read for it, and nothing else in it is looked at. */
import type request from 'supertest';
import { describe, expect, it } from 'vitest';
import { createApiKey } from '../../src/keys/keys.js';
import { expectDescribed, pageOf, problemOf } from '../answer.js';
import { useCountedServices } from '../countedService.js';
import { withinASecond } from '../until.js';

const services = useCountedServices();
const open = (environment: Record<string, string> = {}) => services.open(environment);
let clients = 0;

function newClient(): string {
  return `203.0.113.${++clients}`;
}

type Get = Awaited<ReturnType<typeof open>>['get'];
const times = (count: number, get: () => PromiseLike<request.Response>) =>
  Promise.all(Array.from({ length: count }, get));
const useUp = async (get: Get, client: string) => {
  expect((await times(10, () => get(client))).map(({ status }) => status)).toEqual(Array(10).fill(200));
};

describe('the page', () => {
  it('is read once for each request that passes, and for none that is refused, when many come at once', async () => {
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

  it('is not read for a client that is known to be over its limit', async () => {
    const { reader, get } = await open();
    await withinASecond(async () => {
      reader.reads = 0;
      const client = newClient();
      await useUp(get, client);
      expect((await times(20, () => get(client))).map(({ status }) => status)).toEqual(Array(20).fill(429));
      expect(reader.reads).toBe(10);
    });
  });

  it('is not read for a request with a fault, which counts nonetheless', async () => {
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

  it('is not read for a request without a key, which counts nonetheless', async () => {
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

describe('a client that has used up its second at another instance', () => {
  it('gets the same refusal and nothing of the page', async () => {
    const [first, second] = [await open(), await open()];
    await withinASecond(async () => {
      const client = newClient();
      await useUp(first.get, client);
      const [known, unknown] = [await first.get(client), await second.get(client)];
      expectDescribed(unknown);
      expect(unknown.status).toBe(429);
      expect(problemOf(unknown)).toEqual(problemOf(known));
      const named = (response: request.Response) => ({ ...response.headers, date: '', 'x-request-id': '' });
      expect(named(unknown)).toEqual(named(known));
      expect(pageOf(unknown).items).toBeUndefined();
    });
  });

  it('costs no reads, no matter how many requests it sends', async () => {
    const [first, second] = [await open(), await open()];
    await withinASecond(async () => {
      second.reader.reads = 0;
      const client = newClient();
      await useUp(first.get, client);
      expect((await times(60, () => second.get(client))).every(({ status }) => status === 429)).toBe(true);
      expect(second.reader.reads).toBe(0);
    });
  });

  it('gets the refusal, not the faults of its request', async () => {
    const [first, second] = [await open(), await open()];
    for (const search of ['?size=0', '?nope=1', '?nextCursor=x', '']) {
      await withinASecond(async () => {
        const client = newClient();
        await useUp(first.get, client);
        expect((await second.get(client, search)).status).toBe(429);
        expect((await second.get(client, search)).status).toBe(429);
      });
    }
  });
});
