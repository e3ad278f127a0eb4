/** Tests openapi-fetch, with types that openapi-typescript generates from the contract, against a running service. */
import createClient from 'openapi-fetch';
import type { paths } from 'openapi-typescript-contract';
import { describe, expect, it } from 'vitest';

const { SERVICE_URL = '', FAILING_URL = '', GROWN_URL = '' } = process.env;
const PATH = '/v1/brandedPhoneNumbers';
type Query = NonNullable<paths[typeof PATH]['get']['parameters']['query']>;

const list = (baseUrl: string, query: Query) => createClient<paths>({ baseUrl }).GET(PATH, { params: { query } });

/** Returns the numbers of all pages. */
async function walk(query: Query): Promise<string[]> {
  const numbers: string[] = [];
  let nextCursor: string | null | undefined;
  do {
    const { data } = await list(SERVICE_URL, { size: 50, ...query, ...(nextCursor && { nextCursor }) });
    numbers.push(...(data?.items ?? []).map((item) => item.phoneNumber));
    nextCursor = data?.nextCursor;
  } while (nextCursor);
  return numbers;
}

describe('A client of openapi-fetch', () => {
  it('reads all pages', async () => {
    expect(await walk({})).toEqual(Array.from({ length: 240 }, (_, i) => `+1415555${String(i).padStart(4, '0')}`));
  });

  it('encodes and repeats parameters', async () => {
    expect(await walk({ phoneNumber: '+14155550007' })).toEqual(['+14155550007']);
    expect(await walk({ carrier: ['AT&T'], status: ['approved'] })).toHaveLength(56);
    expect(await walk({ internalName: ['Billing & Payments', 'A+B, 100%'] })).toHaveLength(120);
    expect(await walk({ status: ['submitted for review'] })).toHaveLength(80);
  });

  it('reads every fault of a rejected request', async () => {
    const { error, response } = await list(SERVICE_URL, { size: 0, phoneNumber: '14155550007' });
    expect(response.status).toBe(400);
    expect(error?.errors?.map((fault) => fault.parameter).sort()).toEqual(['phoneNumber', 'size']);
  });

  it('sends the ETag of a page, and reads that the page has not changed', async () => {
    const client = createClient<paths>({ baseUrl: SERVICE_URL });
    const { response } = await client.GET(PATH);
    const header = { 'If-None-Match': response.headers.get('ETag') ?? '' };
    expect((await client.GET(PATH, { params: { header } })).response.status).toBe(304);
  });

  it('reads a 429 and its Retry-After', async () => {
    const { response, error } = await list(`${FAILING_URL}/openapi-fetch/429-1`, {});
    expect(response.status).toBe(429);
    expect(error?.message).toBe('Unavailable');
    expect(response.headers.get('Retry-After')).toBe('1');
  });

  it('accepts new members and values', async () => {
    const { data } = await list(GROWN_URL, { phoneNumber: '+14155550001' });
    const status: string | undefined = data?.items[0]?.status;
    expect(status).toBe('on hold');
    expect(data?.items[0]?.carrierStatuses[0]).toMatchObject({ feature: 'voicemailGreeting' });
  });
});
