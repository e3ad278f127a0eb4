/** The packed client, installed and run against the live service. */
import { readFileSync } from 'node:fs';
import type { BrandedPhoneNumber, ListBrandedPhoneNumbersRequest } from 'branded-phone-numbers-client';
import { BrandedPhoneNumbersApi, Configuration, eachNumber, ResponseError } from 'branded-phone-numbers-client';
import { describe, expect, it } from 'vitest';

interface Shape {
  title: string;
  arguments: ListBrandedPhoneNumbersRequest;
  query: string;
  count: number;
}

const { SERVICE_URL = '', LIMITED_URL = '', GROWN_URL = '', SHAPES = '' } = process.env;
const shapes: Shape[] = JSON.parse(readFileSync(SHAPES, 'utf8'));
const client = (basePath: string) => new BrandedPhoneNumbersApi(new Configuration({ basePath }));
const api = client(SERVICE_URL);

/** All pages of a walk by hand, of the largest size. */
async function walk(request: ListBrandedPhoneNumbersRequest): Promise<BrandedPhoneNumber[]> {
  const items: BrandedPhoneNumber[] = [];
  let nextCursor: string | null | undefined;
  do {
    const page = await api.listBrandedPhoneNumbers({ size: 100, ...request, ...(nextCursor && { nextCursor }) });
    items.push(...page.items);
    nextCursor = page.nextCursor;
  } while (nextCursor !== null);
  return items;
}

describe('The TypeScript client', () => {
  it.each(shapes)('lists the right numbers for $title', async ({ arguments: request, query, count }) => {
    const numbers = await walk(request);
    expect(numbers).toHaveLength(count);
    const answer = await fetch(`${SERVICE_URL}/v1/brandedPhoneNumbers?size=100&${query}`);
    const first = (await answer.json()) as { items: { phoneNumber: string }[] };
    expect(numbers.slice(0, 100).map((number) => number.phoneNumber)).toEqual(
      first.items.map((item) => item.phoneNumber),
    );
  });

  it('sends an empty array as no filter', async () => {
    expect(await walk({ carrier: [], status: [], feature: [] })).toHaveLength(240);
  });

  it('reads times as dates and what is not known as null', async () => {
    const page = await api.listBrandedPhoneNumbers({ phoneNumber: '+14155550003' });
    expect(page.nextCursor).toBeNull();
    const [number] = page.items;
    expect(number?.createdAt).toEqual(new Date('2026-02-03T16:49:02.748Z'));
    expect(number?.carrierStatuses[0]?.createdAt).toEqual(new Date('2026-02-03T16:49:02.748Z'));
    expect(number).toMatchObject({ internalName: null, brandingNameShort: 'Café & Co', brandingNameLong: null });
  });

  it('throws a refused request as an error that carries the problem', async () => {
    const error = await api.listBrandedPhoneNumbers({ nextCursor: 'damaged' }).catch((thrown) => thrown);
    expect(error).toBeInstanceOf(ResponseError);
    expect(await error.response.json()).toMatchObject({ type: '/problems/invalid-cursor', status: 400 });
  });

  it('throws a 429 at once, with Retry-After', async () => {
    const answers = await Promise.allSettled(
      Array.from({ length: 15 }, () => client(LIMITED_URL).listBrandedPhoneNumbers({ size: 1 })),
    );
    const refused = answers.filter((answer) => answer.status === 'rejected').map((answer) => answer.reason);
    expect(refused).toHaveLength(5);
    for (const { response } of refused as ResponseError[]) {
      expect(response.status).toBe(429);
      expect(response.headers.get('Retry-After')).toBe('1');
    }
  });

  it('accepts members and values that it does not know', async () => {
    const { items } = await client(GROWN_URL).listBrandedPhoneNumbers({ phoneNumber: '+14155550001' });
    expect(items[0]).toMatchObject({
      status: 'on hold',
      carrierStatuses: [{ feature: 'voicemailGreeting', detailedStatus: 'expired.optIn' }, {}],
    });
  });
});

describe('eachNumber', () => {
  /** A client of the limited service that notes when it asked and what it was answered. */
  function observed() {
    const asked: number[] = [];
    const statuses: number[] = [];
    const configuration = new Configuration({
      basePath: LIMITED_URL,
      fetchApi: async (input, init) => {
        asked.push(performance.now());
        const response = await fetch(input, init);
        statuses.push(response.status);
        return response;
      },
    });
    return { api: new BrandedPhoneNumbersApi(configuration), asked, statuses };
  }

  async function collect(numbers: AsyncIterable<BrandedPhoneNumber>): Promise<string[]> {
    const collected: string[] = [];
    for await (const number of numbers) collected.push(number.phoneNumber);
    return collected;
  }

  const quietSecond = () => new Promise((resolve) => setTimeout(resolve, 1100));
  const all = Array.from({ length: 240 }, (_, i) => `+1415555${String(i).padStart(4, '0')}`);

  it('yields every number once, in order, over all pages', async () => {
    expect(await collect(eachNumber(api, { size: 7 }))).toEqual(all);
  });

  it('keeps the filters on every page', async () => {
    expect(await collect(eachNumber(api, { size: 9, carrier: ['AT&T'], status: ['approved'] }))).toHaveLength(56);
  });

  it('never asks more than ten times in a second, and so is never refused', async () => {
    await quietSecond();
    const { api: limited, asked, statuses } = observed();
    const walks = [eachNumber(limited, { size: 20 }), eachNumber(limited, { size: 20 })];
    expect(await Promise.all(walks.map(collect))).toEqual([all, all]);
    expect(statuses).toEqual(Array(24).fill(200));
    for (const [i, at] of asked.entries())
      expect(asked.filter((b) => b >= at && b < at + 1000).length, `${i}`).toBeLessThanOrEqual(10);
  });

  it('waits out a 429 by its Retry-After and goes on', async () => {
    await quietSecond();
    await Promise.all(Array.from({ length: 10 }, () => client(LIMITED_URL).listBrandedPhoneNumbers({ size: 1 })));
    const { api: limited, asked, statuses } = observed();
    expect(await collect(eachNumber(limited))).toEqual(all);
    expect(statuses).toEqual([429, 200, 200, 200]);
    expect((asked[1] ?? 0) - (asked[0] ?? 0)).toBeGreaterThanOrEqual(990);
  });

  it('throws any other error', async () => {
    await expect(collect(eachNumber(api, { nextCursor: 'damaged' }))).rejects.toBeInstanceOf(ResponseError);
  });

  it('ends while it waits, when its signal is aborted', async () => {
    await quietSecond();
    await Promise.all(Array.from({ length: 10 }, () => client(LIMITED_URL).listBrandedPhoneNumbers({ size: 1 })));
    const walk = collect(eachNumber(client(LIMITED_URL), {}, { signal: AbortSignal.timeout(200) }));
    await expect(walk).rejects.toMatchObject({ name: 'TimeoutError' });
  });
});
