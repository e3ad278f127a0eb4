import fc from 'fast-check';
import request from 'supertest';
import { beforeAll, describe, expect, inject, it } from 'vitest';
import { parameters } from '../../../src/contract.js';
import { entryWith, numberWith, write } from '../../support/numbers.js';
import { expectDescribed, pageOf, problemOf } from '../../support/response.js';
import { useService } from '../../support/service.js';

const service = useService();
const get = (search: string) => request(service.url).get(`/v1/brandedPhoneNumbers${search}`);
const repeat = (name: string, times: number, value = 'x') => Array(times).fill(`${name}=${value}`).join('&');
const UUID = '6513270e-269e-4d37-b2a7-4de452e6b438';

beforeAll(() =>
  write(service.database, [
    numberWith({
      phoneNumber: '+14155550123',
      internalName: 'Mortgage Sales Line',
      reportingGroup: 'Sales + Service',
      carrierStatuses: [
        entryWith('AT&T', 'brandedCallerId', 'pending.initialOptIn'),
        entryWith('Verizon', 'spamRemediation', 'approved.optIn'),
      ],
    }),
    numberWith({ phoneNumber: '+14155550124', reportingGroup: 'a,b' }),
    numberWith({
      phoneNumber: '+14155550125',
      internalName: '50%25 off',
      reportingGroup: 'a%40b',
      carrierStatuses: [entryWith('AT%26T', 'brandedCallerId', 'rejected.optIn')],
    }),
  ]),
);

describe('GET /v1/brandedPhoneNumbers accepts', () => {
  const rows: [string, string, string[]][] = [
    ['no parameters', '', ['+14155550123', '+14155550124', '+14155550125']],
    ['+ in a number as %2B', '?phoneNumber=%2B14155550123', ['+14155550123']],
    ['spaces as +', '?status=submitted+for+review', ['+14155550123']],
    ['spaces as %20', '?status=submitted%20for%20review', ['+14155550123']],
    ['& in a carrier as %26', '?carrier=AT%26T&feature=brandedCallerId&status=pending.initialOptIn', ['+14155550123']],
    ['a detailed status as status', '?feature=spamRemediation&status=approved.optIn', ['+14155550123']],
    ['+ in a group as %2B', '?reportingGroup=Sales+%2B+Service', ['+14155550123']],
    ['a comma as part of a group', '?reportingGroup=a,b', ['+14155550124']],
    ['unencoded reserved characters', "?internalName=a:/?()'!*,@", []],
    ['a carrier in lower case, as an unknown one', '?carrier=at%26t', []],
    ['a name of 255 characters', `?internalName=${encodeURIComponent('😀'.repeat(255))}`, []],
    ['% as %25 before a space', '?internalName=100%25+sure', []],
    ['%25 in a name as %2525', '?internalName=50%2525+off', ['+14155550125']],
    ['%25 and %40, which are decoded once', '?internalName=50%25+off&reportingGroup=a%40b', []],
    ['50 names of 255 characters', `?${repeat('carrier', 50, 'x'.repeat(255))}`, []],
    ['100 pairs after empty ones', `?&&&${[repeat('internalName', 50), repeat('carrier', 50)].join('&&')}`, []],
    ['= in a value', '?internalName=a=b', []],
    ['an encoded parameter name', '?%73ize=1', ['+14155550123']],
    ['empty pairs', '?&size=1&', ['+14155550123']],
  ];
  it.each(rows)('%s', async (_name, search, phoneNumbers) => {
    const response = await get(search);
    expectDescribed(response);
    expect(response.status).toBe(200);
    expect(pageOf(response).items.map(({ phoneNumber }) => phoneNumber)).toEqual(phoneNumbers);
  });

  it('an invalid Content-Type', async () => {
    expect((await get('').set('Content-Type', 'nonsense; ;;')).status).toBe(200);
  });
});

describe('GET /v1/brandedPhoneNumbers responds with a 400 that describes', () => {
  type Row = [name: string, search: string, parameter: string, detail: RegExp];
  const rows: Row[] = [
    ['a size of 0', '?size=0', 'size', /page size from 1 to 100/],
    ['a size of 101', '?size=101', 'size', /page size from 1 to 100/],
    ...['0x10', '1e1', '5.0', '%207', '%2B7', '-7'].map(
      (size): Row => [`a size of ${size}`, `?size=${size}`, 'size', /plain digits/],
    ),
    ['a huge size', `?size=${'9'.repeat(400)}`, 'size', /page size from 1 to 100/],
    ['a repeated size', '?size=1&size=1', 'size', /more than once/],
    ['a number with an unencoded +', '?phoneNumber=+14155550123', 'phoneNumber', /%2B/],
    ...[
      '14155550123',
      '%2B0155',
      '%2B1234567890123456',
      '%2B1',
      '%2B14155550123%0A',
      '%2B44+(0)20+7946',
      '%EF%BC%8B12',
    ].map(
      (number): Row => [
        `the number ${number}`,
        `?phoneNumber=${number}`,
        'phoneNumber',
        /E\.164, for example \+14155550123$/,
      ],
    ),
    ['a no-break space', '?phoneNumber=%2B1%C2%A0415', 'phoneNumber', /^"\+1\\u00a0415" is not a phone/],
    ['a status with a zero-width space', '?status=approved%E2%80%8B', 'status', /^"approved\\u200b".*mean approved\?$/],
    ['a size with a zero-width space', '?size=5%E2%80%8B', 'size', /plain digits, not "5\\u200b"$/],
    ['a name with a zero-width space', '?carrier%E2%80%8B=x', 'carrier\u200b', /\(carrier\\u200b\).*mean carrier\?$/],
    ...[`urn:uuid:${UUID}`, `%7B${UUID}%7D`, UUID.replaceAll('-', '')].map(
      (id): Row => [`the UUID ${id}`, `?businessProfileId=${id}`, 'businessProfileId', /8-4-4-4-12/],
    ),
    ['a UUID after a space', `?businessProfileId=+${UUID}`, 'businessProfileId', /form, for example \S{36}$/],
    ['an empty group after another group', '?reportingGroup=a&reportingGroup=', 'reportingGroup', /empty/],
    ['a parameter without =', '?carrier', 'carrier', /empty/],
    ['a name of 256 characters', `?internalName=${'x'.repeat(256)}`, 'internalName', /256 characters; at most 255/],
    ['a control character', '?internalName=a%0Ab', 'internalName', /control characters/],
    ['a NUL byte', '?carrier=%00', 'carrier', /control characters/],
    ['51 values', `?${repeat('carrier', 51)}`, 'carrier', /51 values; at most 50/],
    ['an unknown feature', '?feature=fax', 'feature', /brandedCallerId, spamRemediation/],
    ['a feature in another case', '?feature=brandedcallerid', 'feature', /did you mean brandedCallerId/],
    ['a misspelt status', '?status=aproved', 'status', /did you mean approved/],
    ['an unknown detailed status', '?detailedStatus=approved', 'detailedStatus', /detailed status/],
    ['a comma between statuses', '?status=approved,rejected', 'status', /repeat the parameter/],
    ['an encoded comma between features', '?feature=brandedCallerId%2C+spamRemediation', 'feature', /repeat the par/],
    ['a size encoded twice', '?size=%2531%2530', 'size', /encoded twice; encode the plain value, "10", once/],
    ['a UUID encoded twice', `?businessProfileId=%2536${UUID.slice(1)}`, 'businessProfileId', /the plain value, "6513/],
    ['a feature encoded twice', '?feature=%2562rand', 'feature', /the plain value, "brand", once/],
    ...['cursor', 'page', 'page_token', 'pageToken', 'next_cursor', 'offset', 'after'].map(
      (name): Row => [`${name} for nextCursor`, `?${name}=1`, name, /not a parameter.* did you mean nextCursor/],
    ),
    ...['limit', 'pageSize', 'per_page', 'page[size]', 'count', 'perPage', 'PAGE_SIZE'].map(
      (name): Row => [`${name} for size`, `?${name}=1`, name, /did you mean size/],
    ),
    ['profile for businessProfileId', `?profile_id=${UUID}`, 'profile_id', /did you mean businessProfileId/],
    ['a misspelt parameter', '?reportinggroup=a', 'reportinggroup', /did you mean reportingGroup/],
    ['a parameter that resembles none', '?xxxe=1', 'xxxe', /^is not a parameter; there are nextCursor, size, /],
    ['brackets', '?carrier[]=a', 'carrier[]', /repeat carrier without brackets/],
    ['a parameter named __proto__', '?__proto__=a', '__proto__', /not a parameter/],
    ['bytes that are not UTF-8', '?carrier=%FF', 'carrier', /percent-encoded/],
    ['a parameter name that is not UTF-8', '?%FF=a', '%FF', /percent-encoded/],
    ...[...parameters.keys()].map((name): Row => [`an empty ${name}`, `?${name}=`, name, /empty/]),
  ];
  it.each(rows)('%s', async (_name, search, parameter, detail) => {
    const response = await get(search);
    expectDescribed(response);
    expect(response.status).toBe(400);
    const problem = problemOf(response);
    expect(problem.type).toBe('/problems/invalid-request');
    expect(problem.detail).toMatch(/[^?]\.$|\?$/);
    expect(problem.errors?.find((fault) => fault.parameter === parameter)?.detail).toMatch(detail);
  });

  it('all faults of a request, including those that the validator does not find', async () => {
    const response = await get(
      '?size=0&carier=x&status=aproved&phoneNumber=+1&feature=&detailedStatus=x&nextCursor=abc&internalName=%FF&status=lost',
    );
    expectDescribed(response);
    const named = problemOf(response).errors?.map(({ parameter }) => parameter);
    expect(named?.sort().join(' ')).toBe(
      'carier detailedStatus feature internalName nextCursor phoneNumber size status status',
    );
  });

  it('the same faults if it is sent again', async () => {
    const outcomes = [await get('?status=again'), await get('?status=again')].map(({ body }) => body.errors?.length);
    expect(outcomes).toEqual([1, 1]);
  });

  it.each([
    ['7,000 parameters', Array(7000).fill('a').join('&')],
    ['501 valid parameters', repeat('carrier', 501)],
  ])('a query of %s as a single fault', async (_name, search) => {
    const response = await get(`?${search}`);
    expectDescribed(response);
    const detail = 'has more than 500 parameters';
    expect(problemOf(response)).toMatchObject({
      status: 400,
      detail: `The query ${detail}.`,
      errors: [{ parameter: '', detail }],
    });
  });

  it('the first 50 of 500 faults, and their total number', async () => {
    const response = await get(`?${Array.from({ length: 500 }, (_, i) => `a${i}=x`).join('&')}`);
    expectDescribed(response);
    const { detail, errors } = problemOf(response);
    expect(errors?.map(({ parameter }) => parameter)).toEqual(Array.from({ length: 50 }, (_, i) => `a${i}`));
    expect(detail).toMatch(/^The request has 500 faults: a0, a1, .*…\. errors has the first 50\.$/);
  });

  it('a long name and a long value, shortened to 100 characters', async () => {
    const response = await get(`?${'😀'.repeat(60)}=x&${'b'.repeat(100)}=x&status=${'c'.repeat(101)}`);
    expectDescribed(response);
    const { errors = [] } = problemOf(response);
    expect(errors.map(({ parameter }) => parameter)).toEqual([`${'😀'.repeat(49)}…`, 'b'.repeat(100), 'status']);
    expect(errors[2]?.detail).toContain(`"${'c'.repeat(99)}…" is not`);
  });

  it('random faults in at most 64 KB, as the contract describes', async () => {
    const encoded = ['%00', '%FF', '%F0%9F%98%80', '%22', '%5C'];
    const names = fc.oneof(
      fc.constantFrom(...parameters.keys()),
      fc.constantFrom('carier', 'carrier[]', 'page_size', '[', '%01%02', '%E2%80%AA', ...encoded),
    );
    const texts = fc.constantFrom('', 'x', 'aproved', 'approved,rejected', '%2525', '+', '9', ...encoded);
    const pair = fc.tuple(names, fc.integer({ min: 1, max: 60 }), texts, fc.integer({ min: 1, max: 60 }));
    const queries = fc
      .tuple(fc.array(pair, { minLength: 1, maxLength: 20 }), fc.integer({ min: 1, max: 501 }))
      .map(([pairs, count]) =>
        Array.from({ length: count }, (_, i) => pairs[i % pairs.length] as (typeof pairs)[number])
          .map(([name, long, text, times]) => `${long > 50 ? name.repeat(40) : name}=${text.repeat(times)}`)
          .join('&')
          .slice(0, 15_000),
      );
    await fc.assert(
      fc.asyncProperty(queries, async (query) => {
        const response = await get(`?${query}`);
        expectDescribed(response);
        expect(Buffer.byteLength(response.text)).toBeLessThanOrEqual(64 * 1024);
        if (response.status === 400) {
          const { detail, errors = [] } = problemOf(response);
          const count = Number(/has (\d+) faults/.exec(detail)?.[1] ?? 1);
          expect(errors).toHaveLength(Math.min(50, count));
        }
      }),
      { numRuns: 200 * inject('tries') },
    );
  });

  it.each([
    ['control characters as names', `${'%00'.repeat(90)}=`],
    ['invisible characters as names', `${'%E2%80%AA'.repeat(20)}=`],
    ['invisible characters as values', `status=${'%F3%A0%80%81'.repeat(20)}`],
    ['control characters as values', `status=${'%00'.repeat(90)}`],
    ['values encoded twice', `status=${'%25E4%25BD%25A0'.repeat(13)}`],
    ['names of three-byte characters', `${'%E4%BD%A0'.repeat(20)}=`],
  ])('50 faults in at most 64 KB: %s', async (_name, pair) => {
    const times = Math.min(500, Math.floor(15_000 / (pair.length + 1)));
    const response = await get(`?${Array(times).fill(pair).join('&')}`);
    expectDescribed(response);
    expect([response.status, problemOf(response).errors?.length]).toEqual([400, 50]);
    expect(Buffer.byteLength(response.text)).toBeLessThanOrEqual(64 * 1024);
  });
});

describe('paths, methods and conditional requests', () => {
  const unknownPaths = ['/v1/brandedPhoneNumbers/', '/V1/brandedPhoneNumbers', '/v1', '/nowhere', '/v1/%ZZ'];
  it.each(unknownPaths)('responds to GET %s with 404', async (path) => {
    const response = await request(service.url).get(path);
    expect(problemOf(response)).toMatchObject({ status: 404, type: '/problems/not-found', message: 'Not Found' });
    expect(response.status).toBe(404);
  });

  it.each(['+', '%2B', ''])(
    'responds with 404 and suggests the parameter if a number after "%s" is in the path',
    async (plus) => {
      const response = await request(service.url).get(`/v1/brandedPhoneNumbers/${plus}14155550123`);
      expectDescribed(response);
      expect(problemOf(response)).toMatchObject({
        status: 404,
        detail: expect.stringContaining('/v1/brandedPhoneNumbers?phoneNumber=%2B14155550123.'),
      });
    },
  );

  it('responds with 400 and suggests %26 if an & in a value is not encoded', async () => {
    for (const [sent, corrected] of [
      ['carrier=AT&T&feature=brandedCallerId', 'carrier=AT%26T'],
      ['internalName=Smith+&+Sons', 'internalName=Smith+%26+Sons'],
    ]) {
      const { errors } = problemOf(await get(`?${sent}`));
      const detail = `is not a parameter; an & in a value is sent as %26: ${corrected}`;
      expect(errors).toEqual([expect.objectContaining({ detail })]);
    }
    expect(problemOf(await get('?carrier=Verizon&sise')).detail).toContain('did you mean size?');
  });

  it.each(['post', 'put', 'patch', 'delete', 'options'] as const)(
    'responds to %s with 405 and the allowed methods',
    async (method) => {
      const response = await request(service.url)[method]('/v1/brandedPhoneNumbers');
      expectDescribed(response);
      expect([response.status, response.get('Allow')]).toEqual([405, 'GET, HEAD']);
      expect(problemOf(response).type).toBe('/problems/method-not-allowed');
    },
  );

  it.each([
    ['alone', (tag: string) => tag],
    ['in a list', (tag: string) => `"x", ${tag}, W/"y"`],
    ['as a strong tag', (tag: string) => tag.slice(2)],
    ['as *', () => '*'],
  ])(
    'responds with 304 if If-None-Match has the ETag %s, with or without the headers that fetch adds',
    async (_name, ifNoneMatch) => {
      const page = await get('?size=1');
      for (const fetched of [{}, { 'Cache-Control': 'no-cache', Pragma: 'no-cache' }]) {
        const headers = { 'If-None-Match': ifNoneMatch(page.get('ETag') ?? ''), ...fetched };
        const response = await get('?size=1').set(headers);
        expectDescribed(response);
        expect(response.status).toBe(304);
        for (const name of ['ETag', 'Vary', 'Cache-Control', 'Link']) expect(response.get(name)).toBe(page.get(name));
      }
    },
  );

  it('responds with 200 if If-None-Match has another ETag', async () => {
    const tag = (await get('?size=1')).get('ETag') ?? '';
    for (const other of [`${tag.slice(0, -2)}"`, tag.slice(0, -1), tag.replace('"', ''), 'W/"x"', '']) {
      expect((await get('?size=1').set('If-None-Match', other)).status).toBe(200);
    }
  });

  it('responds to a conditional HEAD with 304, as to GET', async () => {
    const head = request(service.url).head('/v1/brandedPhoneNumbers');
    expect((await head.set('If-None-Match', (await get('')).get('ETag') ?? '')).status).toBe(304);
  });

  it('returns X-Request-Id if it is safe to log, and replaces it otherwise', async () => {
    const safe = ['2b4f9c1e-1234-4234-8234-123456789012', '00-4bf92f3577b34da6', '1234567890123456', 'run-123456'];
    for (const id of safe) expect((await get('').set('X-Request-Id', id)).get('X-Request-Id')).toBe(id);
    const numbers = ['14155550101', '1-415-555-0101', 'tel:14155550101', 'call-415.555.0101_b'];
    for (const unsafe of [...numbers, 'a b"c', `bpn_${'A'.repeat(43)}`, `Bearer:bpn_${'A'.repeat(43)}`]) {
      expect((await get('').set('X-Request-Id', unsafe)).get('X-Request-Id')).toMatch(/^[0-9a-f-]{36}$/);
    }
  });
});
