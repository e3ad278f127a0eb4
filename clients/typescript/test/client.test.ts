/** Tests the installed package against a running service. */
import { getEventListeners } from 'node:events';
import { readFileSync } from 'node:fs';
import { inspect } from 'node:util';
import { queryObjects } from 'node:v8';
import type { BrandedPhoneNumber, ListBrandedPhoneNumbersRequest, Problem } from 'branded-phone-numbers-client';
import * as exported from 'branded-phone-numbers-client';
import {
  BrandedPhoneNumberPageFromJSON,
  BrandedPhoneNumbersApi,
  Configuration,
  eachNumber,
  eachPage,
  pageIfChanged,
  ResponseError,
} from 'branded-phone-numbers-client';
import { describe, expect, it } from 'vitest';

interface Shape {
  title: string;
  arguments: ListBrandedPhoneNumbersRequest;
  query: string;
  count: number;
}

const { SERVICE_URL = '', LIMITED_URL = '', KEYED_URL = '', GROWN_URL = '', FAILING_URL = '' } = process.env;
const { API_KEY = '', SHAPES = '', MALFORMED = '', UNTRUSTED_URL = '', UNTRUSTED_COUNT_URL = '' } = process.env;
const shapes: Shape[] = JSON.parse(readFileSync(SHAPES, 'utf8'));
const client = (basePath: string, timeout?: number) =>
  new BrandedPhoneNumbersApi(new Configuration({ basePath, ...(timeout && { timeout }) }));
const api = client(SERVICE_URL);
/** Returns a client that retries for so many milliseconds. */
const retryingFor = (retryFor: number, basePath: string) =>
  new BrandedPhoneNumbersApi(new Configuration({ basePath, retryFor }));

/** Returns the numbers of all pages, requested without the helper, with the largest page size. */
async function walk(request: ListBrandedPhoneNumbersRequest): Promise<BrandedPhoneNumber[]> {
  const items: BrandedPhoneNumber[] = [];
  let nextCursor: string | null = null;
  do {
    const page = await api.listBrandedPhoneNumbers({ size: 100, ...request, nextCursor });
    items.push(...page.items);
    nextCursor = page.nextCursor;
  } while (nextCursor !== null);
  return items;
}

/** Returns the error with which a call ends, which must be one of the service's or a proxy's responses. */
async function responseError(call: Promise<unknown>): Promise<ResponseError> {
  const error = await call.catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(ResponseError);
  return error as ResponseError;
}

interface ReceivedRequest {
  at: number;
  headers: Record<string, string>;
  bytes?: number;
}

/** Returns a base URL of the failing proxy, and functions that return its requests, and the milliseconds between them. */
function failingUrl(...steps: string[]) {
  const url = `${FAILING_URL}/typescript-${crypto.randomUUID()}/${steps}`;
  const requests = async () => (await (await fetch(`${url}/requests`)).json()) as ReceivedRequest[];
  return {
    url,
    requests,
    async waits() {
      const times = (await requests()).map(({ at }) => at);
      return times.slice(1).map((time, i) => time - (times[i] ?? 0));
    },
  };
}

async function collect(numbers: AsyncIterable<BrandedPhoneNumber>): Promise<string[]> {
  const collected: string[] = [];
  for await (const number of numbers) collected.push(number.phoneNumber);
  return collected;
}

describe('The TypeScript client', () => {
  it.each(shapes)('lists the right numbers for $title', async ({ arguments: request, query, count }) => {
    const numbers = await walk(request);
    expect(numbers).toHaveLength(count);
    const response = await fetch(`${SERVICE_URL}/v1/brandedPhoneNumbers?size=100&${query}`);
    const first = (await response.json()) as { items: { phoneNumber: string }[] };
    expect(numbers.slice(0, 100).map((number) => number.phoneNumber)).toEqual(
      first.items.map((item) => item.phoneNumber),
    );
  });

  it('sends an empty array as no filter', async () => {
    expect(await walk({ carrier: [], status: [], feature: [] })).toHaveLength(240);
  });

  it('reads times as dates and unknown texts as null', async () => {
    const page = await api.listBrandedPhoneNumbers({ phoneNumber: '+14155550003' });
    expect(page.nextCursor).toBeNull();
    const [number] = page.items;
    expect(number?.createdAt).toEqual(new Date('2026-02-03T16:49:02.748Z'));
    expect(number?.carrierStatuses[0]?.createdAt).toEqual(new Date('2026-02-03T16:49:02.748Z'));
    expect(number).toMatchObject({ internalName: null, brandingNameShort: 'Café & Co', brandingNameLong: null });
  });

  it('has the known values as they are in a page', async () => {
    const { Status, DetailedStatus, Feature } = exported;
    const [number] = (await api.listBrandedPhoneNumbers({ phoneNumber: '+14155550001' })).items;
    const [entry] = number?.carrierStatuses ?? [];
    expect(number?.status === Status.Rejected).toBe(true);
    expect(entry?.feature === Feature.BrandedCallerId && entry.detailedStatus === DetailedStatus.RejectedOptIn).toBe(
      true,
    );
  });

  it('writes a page as the service sends it', async () => {
    const response = await fetch(`${SERVICE_URL}/v1/brandedPhoneNumbers?size=100`);
    const sent = await response.text();
    expect(sent).toContain('"2026-02-03T16:49:02.800Z"');
    expect(sent).toContain('"2026-02-03T16:49:02.000Z"');
    const page = await api.listBrandedPhoneNumbers({ size: 100 });
    expect(JSON.parse(JSON.stringify(page))).toEqual(JSON.parse(sent));
    expect(BrandedPhoneNumberPageFromJSON(JSON.parse(sent))).toEqual(page);
  });

  it('asks for compressed responses, and names itself after the program', async () => {
    const { url, requests } = failingUrl('ok');
    const named = new BrandedPhoneNumbersApi(new Configuration({ basePath: url, userAgent: 'acme-sync/2.0' }));
    expect((await named.listBrandedPhoneNumbers({ size: 100 })).items).toHaveLength(100);
    await client(url).listBrandedPhoneNumbers();
    const [first, second] = await requests();
    expect(first?.bytes).toBeLessThan(10_000);
    const own = /^branded-phone-numbers-client\/\d+\.\d+\.\d+ \(TypeScript\)$/;
    expect(second?.headers['user-agent']).toMatch(own);
    expect(first?.headers['user-agent']).toBe(`acme-sync/2.0 ${second?.headers['user-agent']}`);
  });

  it('exports what a program needs', () => {
    expect(Object.values(exported.Status)).toEqual(['submitted for review', 'rejected', 'approved', 'unregistered']);
    expect(Object.keys(exported).sort()).toEqual([
      'BrandedPhoneNumberFromJSON',
      'BrandedPhoneNumberPageFromJSON',
      'BrandedPhoneNumbersApi',
      'Configuration',
      'DetailedStatus',
      'Feature',
      'FetchError',
      'ResponseError',
      'Status',
      'StatusFilter',
      'eachNumber',
      'eachPage',
      'pageIfChanged',
    ]);
  });

  it('throws an error with the problem if the request is rejected', async () => {
    const error = await responseError(api.listBrandedPhoneNumbers({ nextCursor: 'damaged' }));
    const problem: Problem | undefined = error.problem;
    expect(problem).toMatchObject({ type: '/problems/invalid-cursor', status: 400 });
    expect(error.message).toBe(`400 Invalid Cursor: ${problem?.detail}`);
    expect(await error.response.json()).toMatchObject({ type: '/problems/invalid-cursor', status: 400 });
    expect(error.requestId).toMatch(/^[\da-f-]{36}$/);
    expect(error.requestId).toBe(error.response.headers.get('X-Request-Id'));
    const printed = inspect(error)
      .split('\n')
      .filter((line) => !/^ +at /.test(line));
    expect(printed.length, inspect(error)).toBeLessThan(20);
  });

  it('throws an error with the content type if a proxy responds', async () => {
    const error = await responseError(retryingFor(0, `${FAILING_URL}/typescript/html`).listBrandedPhoneNumbers());
    expect(error.message).toBe('502 Unexpected Response: text/html instead of application/problem+json');
    expect(error.problem).toBeUndefined();
    expect(error.requestId).toBeUndefined();
    expect(await error.response.text()).toContain('Bad Gateway');
  });

  it.each([
    ['login', `<h1>Log in</h1>${'.'.repeat(85)}`],
    ['other', '{"ok":true}'],
  ])('throws a 200 that is no page as an error that shows its beginning: %s', async (step, start) => {
    const error = await responseError(client(`${FAILING_URL}/typescript/${step}`).listBrandedPhoneNumbers());
    expect(error.message).toBe(`200 Unexpected Response: not a page of numbers: ${start}`);
  });

  it.each(MALFORMED.split(' '))('rejects a page that %s', async (step) => {
    const error = await responseError(client(`${FAILING_URL}/typescript/${step}`).listBrandedPhoneNumbers());
    expect(error.message).toMatch(/^200 Unexpected Response: not a page of numbers: /);
  });

  it('follows no redirect, and says where it leads to', async () => {
    const { url, requests } = failingUrl('moved*');
    const error = await responseError(collect(eachNumber(client(url))));
    expect(error.message).toBe(`308 Unexpected Response: redirected to ${SERVICE_URL}: set that as the base URL`);
    expect(await requests()).toHaveLength(1);
  });

  it.each(['localhost:3000', 'numbers.example.com'])(
    'throws at once if the base URL has no scheme: %s',
    async (url) => {
      await expect(collect(eachNumber(client(url)))).rejects.toThrow(
        `the base URL must begin with http:// or https://, unlike ${url}`,
      );
    },
  );

  it('throws at once if it does not trust the certificate', async () => {
    const connections = async () => Number(await (await fetch(UNTRUSTED_COUNT_URL)).text());
    const before = await connections();
    await expect(collect(eachNumber(client(UNTRUSTED_URL)))).rejects.toMatchObject({
      name: 'FetchError',
      message: expect.stringContaining('unable to verify'),
    });
    expect(await connections()).toBe(before + 1);
  });

  it.each([null, undefined])('rejects an array with %s', async (missing) => {
    // @ts-expect-error: from JavaScript
    await expect(api.listBrandedPhoneNumbers({ carrier: ['AT&T', missing] })).rejects.toThrow(
      `carrier[1] is ${missing}; leave it out`,
    );
  });

  it('keeps nothing of its requests in a signal that lives as long as the program', async () => {
    const { signal } = new AbortController();
    const request = () => api.listBrandedPhoneNumbers({ size: 1 }, { signal });
    await request();
    const before = queryObjects(AbortSignal, { format: 'count' });
    for (let i = 0; i < 50; i++) await request();
    expect(queryObjects(AbortSignal, { format: 'count' })).toBeLessThan(before + 25);
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });

  it('accepts a base URL that ends with a slash', async () => {
    for (const url of [`${SERVICE_URL}/`, `${FAILING_URL}/typescript/ok/`])
      expect((await client(url).listBrandedPhoneNumbers({ size: 1 })).items).toHaveLength(1);
  });

  it.each([{ accessToken: API_KEY }, { apiKey: API_KEY }])('sends a key: %o', async (key) => {
    const keyed = new BrandedPhoneNumbersApi(new Configuration({ basePath: KEYED_URL, ...key }));
    expect((await keyed.listBrandedPhoneNumbers()).items).toHaveLength(25);
    await expect(client(KEYED_URL).listBrandedPhoneNumbers()).rejects.toThrow('401 Unauthorized');
  });

  it('retries in every call, unless retries are turned off', async () => {
    const { url } = failingUrl('503', 'break', 'ok', '429-1');
    expect((await client(url).listBrandedPhoneNumbers()).items).toHaveLength(25);
    expect((await pageIfChanged(client(url), undefined))?.page.items).toHaveLength(25);
    const once = retryingFor(0, failingUrl('503', 'ok', 'break', '429').url);
    await expect(once.listBrandedPhoneNumbers()).rejects.toThrow('503 Unavailable: Try again.');
    expect(await pageIfChanged(once, undefined)).toBeDefined();
    await expect(pageIfChanged(once, undefined)).rejects.toThrow('fetch failed');
    await expect(collect(eachNumber(once))).rejects.toThrow('429');
  });

  it.each(['503,429-20*', 'late*'])('gives up when a retry would exceed its time: %s', async (steps) => {
    const { url, waits } = failingUrl(steps);
    await expect(retryingFor(6000, url).listBrandedPhoneNumbers()).rejects.toThrow('Unavailable: Try again.');
    expect(await waits()).toHaveLength(1);
  });

  it.each(['silent', 'stall', 'trickle', 'drip'])('times out if the response is %s', async (step) => {
    const started = performance.now();
    const asking = client(`${FAILING_URL}/typescript/${step}`, 300).listBrandedPhoneNumbers();
    await expect(asking).rejects.toMatchObject({ name: 'TimeoutError' });
    expect(performance.now() - started).toBeLessThan(5000);
  });

  it('throws an error if there is no response', async () => {
    await expect(client('http://127.0.0.1:1').listBrandedPhoneNumbers()).rejects.toMatchObject({
      name: 'FetchError',
      message: expect.stringMatching(/^fetch failed: /),
    });
  });

  it('throws at once if fetch refuses to connect to the port', async () => {
    const started = performance.now();
    await expect(collect(eachNumber(client('http://127.0.0.1:1')))).rejects.toThrow('bad port');
    // Retries would take a minute.
    expect(performance.now() - started).toBeLessThan(30_000);
  });

  it('throws a 429 with Retry-After', async () => {
    const { url, requests } = failingUrl('429-1');
    const { response } = await responseError(retryingFor(0, url).listBrandedPhoneNumbers());
    expect(response.status).toBe(429);
    expect(response.headers.get('Retry-After')).toBe('1');
    expect(await requests()).toHaveLength(1);
  });

  it('accepts new members and values', async () => {
    const { items } = await client(GROWN_URL).listBrandedPhoneNumbers({ phoneNumber: '+14155550001' });
    expect(items[0]).toMatchObject({
      status: 'on hold',
      carrierStatuses: [{ feature: 'voicemailGreeting', detailedStatus: 'expired.optIn' }, {}],
    });
  });
});

describe('pageIfChanged', () => {
  it('returns a page with its ETag, and undefined if it has not changed', async () => {
    const held = await pageIfChanged(api, undefined, { size: 2 });
    expect(held?.page.items.map((number) => number.phoneNumber)).toEqual(['+14155550000', '+14155550001']);
    expect(await pageIfChanged(api, held?.etag, { size: 2 })).toBeUndefined();
    expect((await pageIfChanged(api, held?.etag, { size: 3 }))?.page.items).toHaveLength(3);
  });

  it.each(['etag', 'Etag', 'ETag'])('reads the header %s', async (name) => {
    const proxied = client(`${FAILING_URL}/typescript/${name}`);
    const held = await pageIfChanged(proxied, undefined);
    expect(held?.etag).toMatch(/^W\/"/);
    expect(await pageIfChanged(proxied, held?.etag)).toBeUndefined();
  });

  it('sends the key, retries, and ends when its signal is aborted', async () => {
    const keyed = new BrandedPhoneNumbersApi(new Configuration({ basePath: KEYED_URL, accessToken: API_KEY }));
    const held = await pageIfChanged(keyed, 'W/"old"');
    expect(await pageIfChanged(keyed, held?.etag)).toBeUndefined();
    const basePath = `${FAILING_URL}/typescript-${crypto.randomUUID()}/503,503-50`;
    const waiting = pageIfChanged(client(basePath), held?.etag, {}, { signal: AbortSignal.timeout(300) });
    await expect(waiting).rejects.toMatchObject({ name: 'TimeoutError' });
  });

  it('throws other errors', async () => {
    await expect(pageIfChanged(api, undefined, { nextCursor: 'damaged' })).rejects.toThrow('400 Invalid Cursor');
  });
});

describe('eachPage', () => {
  it('yields pages, and resumes after the page that had a cursor', async () => {
    let nextCursor: string | null = null;
    const sizes: number[] = [];
    for await (const page of eachPage(api, { carrier: ['AT&T'] })) {
      sizes.push(page.items.length);
      nextCursor = page.nextCursor;
      break;
    }
    for await (const page of eachPage(api, { carrier: ['AT&T'], nextCursor })) sizes.push(page.items.length);
    expect(sizes).toEqual([100, 100]);
  });

  it.each([
    ['cursor-a*', 1],
    ['cursor-a,cursor-b,cursor-c,cursor-a*', 3],
  ])('throws if a cursor repeats, instead of yielding pages again: %s', async (steps, count) => {
    const pages: unknown[] = [];
    const walk = async () => {
      for await (const page of eachPage(client(failingUrl(steps).url))) pages.push(page);
    };
    expect((await responseError(walk())).message).toBe('200 Unexpected Response: the nextCursor a repeats');
    expect(pages).toHaveLength(count);
  });
});

describe('eachNumber', () => {
  /** Returns a client of the service with a rate limit, and arrays that record the time and the status of each request. */
  function observed() {
    const times: number[] = [];
    const statuses: number[] = [];
    const configuration = new Configuration({
      basePath: LIMITED_URL,
      fetchApi: async (input, init) => {
        times.push(performance.now());
        const response = await fetch(input, init);
        statuses.push(response.status);
        return response;
      },
    });
    return { api: new BrandedPhoneNumbersApi(configuration), times, statuses };
  }

  const quietSecond = () => new Promise((resolve) => setTimeout(resolve, 1100));
  const all = Array.from({ length: 240 }, (_, i) => `+1415555${String(i).padStart(4, '0')}`);

  it('yields every number once, in order, over all pages', async () => {
    expect(await collect(eachNumber(api, { size: 7 }))).toEqual(all);
  });

  it('keeps the filters on every page', async () => {
    expect(await collect(eachNumber(api, { size: 9, carrier: ['AT&T'], status: ['approved'] }))).toHaveLength(56);
  });

  it('lets twelve programs finish that share one rate limit', async () => {
    const walks = Array.from({ length: 12 }, () => collect(eachNumber(client(LIMITED_URL), { size: 20 })));
    expect(await Promise.all(walks)).toEqual(walks.map(() => all));
  });

  it('sends at most ten requests per second, so none is rejected', async () => {
    await quietSecond();
    const { api: limited, times, statuses } = observed();
    const walks = [eachNumber(limited, { size: 20 }), eachNumber(limited, { size: 20 })];
    expect(await Promise.all(walks.map(collect))).toEqual([all, all]);
    expect(statuses).toEqual(Array(24).fill(200));
    for (const [i, at] of times.entries())
      expect(times.filter((b) => b >= at && b < at + 1000).length, `${i}`).toBeLessThanOrEqual(10);
  });

  it('keeps the given pace', async () => {
    const { url, requests } = failingUrl('ok');
    expect(await collect(eachNumber(client(url), { size: 20 }, { requestsPerSecond: 4 }))).toEqual(all);
    const times = (await requests()).map(({ at }) => at);
    for (const [i, at] of times.slice(4).entries()) expect(at - (times[i] ?? 0)).toBeGreaterThan(990);
  });

  it('waits for Retry-After after a 429, then continues', async () => {
    await quietSecond();
    await Promise.all(Array.from({ length: 10 }, () => client(LIMITED_URL).listBrandedPhoneNumbers({ size: 1 })));
    const { api: limited, times, statuses } = observed();
    expect(await collect(eachNumber(limited))).toEqual(all);
    expect(statuses).toEqual([429, 200, 200, 200]);
    expect((times[1] ?? 0) - (times[0] ?? 0)).toBeGreaterThanOrEqual(990);
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

  it('retries each page after waits that double up to eight seconds, each with a random part', async () => {
    const { url, waits } = failingUrl('etag', 'break', '503', '429-1', 'html', 'half', '504', 'ok', '503');
    expect(await collect(eachNumber(client(url)))).toEqual(all);
    const [, , , , , longest = 0, , secondPage] = await waits();
    for (const [i, wait] of [500, 1000, 2000, 4000, 8000, 8000].entries())
      expect((await waits())[i], `${i}`).toBeGreaterThan(wait - 10);
    expect((await waits()).slice(0, 6).reduce((sum, wait) => sum + wait)).toBeGreaterThan(23_750);
    expect(longest).toBeLessThan(15_000);
    expect(secondPage).toBeLessThan(7900);
    expect(await waits()).toHaveLength(9);
  });

  it('does not count what it waits for its pace in the time of retries', async () => {
    const paced = retryingFor(2000, failingUrl('ok', 'ok', 'ok', '503').url);
    const pages = Array.from({ length: 4 }, () => eachPage(paced, {}, { requestsPerSecond: 1 }).next());
    for (const { value } of await Promise.all(pages)) expect(value?.items).toHaveLength(100);
  });

  it('slows down with each 429, and regains its pace page by page', async () => {
    const { url, waits } = failingUrl('size=30', '429', '429', '429');
    expect(await collect(eachNumber(client(url)))).toEqual(all);
    // An eighth of ten requests per second, and a fiftieth more after each page.
    expect(Math.min(...(await waits()).slice(2, 6))).toBeGreaterThanOrEqual(990);
    expect(Math.min(...(await waits()).slice(6))).toBeLessThan(900);
  });

  it('waits until the date, or so many seconds, in Retry-After', async () => {
    const { url, waits } = failingUrl('503-date', '503-2', '503-');
    expect(await collect(eachNumber(client(url)))).toEqual(all);
    for (const [i, wait] of [990, 1990, 1990].entries()) expect((await waits())[i], `${i}`).toBeGreaterThan(wait);
  });

  it.each(['500', 'login', 'silent'])('throws at once where retrying does not help: %s', async (step) => {
    const { url, waits } = failingUrl(step);
    await expect(collect(eachNumber(client(url, 300)))).rejects.toThrow();
    expect(await waits()).toHaveLength(0);
  });

  it('ends while it waits for a service that is down, when its signal is aborted', async () => {
    const { url } = failingUrl('503-50');
    const walk = collect(eachNumber(client(url), {}, { signal: AbortSignal.timeout(200) }));
    await expect(walk).rejects.toMatchObject({ name: 'TimeoutError' });
  });

  it('accepts only filters that exist', async () => {
    // @ts-expect-error: the filter is called carrier
    const misspelled = collect(eachNumber(api, { carrrier: ['AT&T'] }));
    await expect(misspelled).rejects.toThrow('400 Invalid Request: carrrier is not a parameter; did you mean carrier?');
    // @ts-expect-error: there is no such status
    eachNumber(api, { status: ['aproved'] });
    eachNumber(api, { status: ['approved'], carrier: ['AT&T'] });
  });
});
