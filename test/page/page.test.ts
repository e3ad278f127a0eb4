import { sql } from 'drizzle-orm';
import request from 'supertest';
import { beforeAll, describe, expect, it } from 'vitest';
import { brandedPhoneNumbers } from '../../src/database/schema.js';
import { entryWith, numberWith, write } from '../support/numbers.js';
import { randomPart } from '../support/randomPart.js';
import { byBytes } from '../support/reference.js';
import { expectDescribed, pageOf, problemOf } from '../support/response.js';
import { useService } from '../support/service.js';
import { walk } from '../support/walk.js';

const service = useService();
const get = (search: string) => request(service.url).get(`/v1/brandedPhoneNumbers${search}`);

const list = Array.from({ length: 60 }, (_, i) =>
  numberWith({
    phoneNumber: `+1${i}`.padEnd(3 + (i % 9), '5'),
    reportingGroup: i % 2 ? 'Control' : null,
    carrierStatuses: i % 3 ? [entryWith('AT&T', 'spamRemediation', 'rejected.optIn')] : [],
  }),
);
const ordered = list.map(({ phoneNumber }) => phoneNumber).sort(byBytes);

beforeAll(() => write(service.database, list));

const firstCursor = async (search: string) => pageOf(await get(search)).nextCursor as string;

describe('a page of GET /v1/brandedPhoneNumbers', () => {
  it('may be stored only by private caches, and only if they revalidate it', async () => {
    expect((await get('?size=1')).get('Cache-Control')).toBe('private, no-cache');
  });

  it('has 25 numbers in byte order unless the request sets a size', async () => {
    expect(pageOf(await get('')).items.map(({ phoneNumber }) => phoneNumber)).toEqual(ordered.slice(0, 25));
  });

  it.each([1, 7, 30, 60, 100])('leads to the next one until every number was returned, with size=%i', async (size) => {
    const pages = await walk(service.url, `size=${size}`);
    expect(pages.flat().map(({ phoneNumber }) => phoneNumber)).toEqual(ordered);
    // A full last page has no cursor, so no empty page follows.
    expect(pages).toHaveLength(Math.ceil(60 / size));
  });

  it('is empty and has no next one if nothing matches', async () => {
    expect(pageOf(await get('?carrier=Nobody'))).toEqual({ items: [], nextCursor: null });
  });
});

describe('a cursor of GET /v1/brandedPhoneNumbers', () => {
  it('stays valid for a page of another size, and after its number is deleted', async () => {
    const extra = numberWith({ phoneNumber: '+100' });
    await write(service.database, [extra]);
    const all = [...ordered, '+100'].sort(byBytes);
    const size = all.indexOf('+100') + 1;
    const cursor = await firstCursor(`?size=${size}`);
    await service.database.delete(brandedPhoneNumbers).where(sql`phone_number = '+100'`);
    const { items } = pageOf(await get(`?size=${size + 1}&nextCursor=${cursor}`));
    expect(items.map(({ phoneNumber }) => phoneNumber)).toEqual(all.slice(size, 2 * size + 1));
  });

  it.each([
    '?size=1',
    '?size=1&reportingGroup=control',
    '?size=1&internalName=Control',
    '?size=1&reportingGroup=Control&status=approved',
  ])('is rejected with other filters: %s', async (search) => {
    const cursor = await firstCursor('?size=1&reportingGroup=Control');
    const response = await get(`${search}&nextCursor=${cursor}`);
    expectDescribed(response);
    expect(response.status).toBe(400);
    expect(problemOf(response)).toMatchObject({
      type: '/problems/invalid-cursor',
      errors: [{ parameter: 'nextCursor', detail: expect.stringContaining('other filters') }],
    });
  });

  it('is rejected if any single character is changed, added or removed', async () => {
    const cursor = await firstCursor('?size=1');
    const damaged = [...cursor].flatMap((character, i) => {
      const replaceBy = (text: string) => cursor.slice(0, i) + text + cursor.slice(i + 1);
      const replacements = [...'ABCDwxyz0189-_.~', ''].filter((text) => text !== character);
      return [...replacements, character + character].map(replaceBy);
    });
    for (const text of [...randomPart(damaged), `${cursor}A`, `${cursor}=`, cursor.toLowerCase(), 'null', '!', '%2B']) {
      const response = await get(`?size=1&nextCursor=${text}`);
      expect([text, response.status, problemOf(response).type]).toEqual([text, 400, '/problems/invalid-cursor']);
    }
  });
});

describe('the Link header of GET /v1/brandedPhoneNumbers', () => {
  it('leads to the next page, with the same filters and size', async () => {
    const first = await get('?size=4&carrier=AT%26T&carrier=Nobody&status=rejected');
    const [, address = ''] = /^<(.+)>; rel="next"$/.exec(first.get('Link') ?? '') ?? [];
    // The link is relative, so it also works behind a proxy that adds a path prefix.
    const { pathname, search } = new URL(address, 'https://proxy.example/telephony/v1/brandedPhoneNumbers?size=4');
    expect(pathname).toBe('/telephony/v1/brandedPhoneNumbers');
    const second = pageOf(await get(search));
    const whole = pageOf(await get('?size=8&carrier=AT%26T&status=rejected'));
    expect(second.items).toEqual(whole.items.slice(4));
  });

  it('is absent on the last page', async () => {
    expect((await get('?size=100')).get('Link')).toBeUndefined();
  });
});

it('the ETag of GET /v1/brandedPhoneNumbers no longer gets a 304 after an item has changed', async () => {
  const etag = (await get('?size=5')).get('ETag') ?? '';
  await service.database.update(brandedPhoneNumbers).set({ internalName: 'Renamed' });
  expect((await get('?size=5').set('If-None-Match', etag)).status).toBe(200);
});
