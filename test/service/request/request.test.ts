import fc from 'fast-check';
import request from 'supertest';
import { beforeAll, describe, expect, it } from 'vitest';
import { parameters } from '../../../src/contract.js';
import { entryWith, numberWith, PROFILES, write } from '../../support/numbers.js';
import { expectDescribed, pageOf, problemOf } from '../../support/response.js';
import { useService } from '../../support/service.js';

const service = useService();
const get = (search: string) => request(service.app).get(`/v1/brandedPhoneNumbers${search}`);
const repeat = (name: string, times: number, value = 'x') => Array(times).fill(`${name}=${value}`).join('&');
const PROFILE = PROFILES[0]?.id ?? '';
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
    ['a number with %2B', '?phoneNumber=%2B14155550123', ['+14155550123']],
    ['spaces as +', '?status=submitted+for+review', ['+14155550123']],
    ['spaces as %20', '?status=submitted%20for%20review', ['+14155550123']],
    ['two statuses', '?status=unregistered&status=rejected', ['+14155550124', '+14155550125']],
    ['& in a carrier as %26', '?carrier=AT%26T&feature=brandedCallerId&status=pending.initialOptIn', ['+14155550123']],
    ['a detailed value of status', '?feature=spamRemediation&status=approved.optIn', ['+14155550123']],
    ['+ in a group as %2B', '?reportingGroup=Sales+%2B+Service', ['+14155550123']],
    ['a comma, which separates nothing', '?reportingGroup=a,b', ['+14155550124']],
    ['commas between two values, which are one unknown value', '?carrier=AT%26T,Verizon', []],
    ['reserved characters as they are', "?internalName=a:/?()'!*,@", []],
    ['an unknown carrier', '?carrier=Nobody', []],
    ['names in another case, which are other names', '?carrier=at%26t', []],
    [
      'a UUID in capitals',
      `?businessProfileId=${PROFILE.toUpperCase()}`,
      ['+14155550123', '+14155550124', '+14155550125'],
    ],
    ['the smallest size', '?size=1', ['+14155550123']],
    ['the largest size', '?size=100', ['+14155550123', '+14155550124', '+14155550125']],
    ['50 values', `?${repeat('carrier', 50)}`, []],
    ['names of 255 characters', `?internalName=${encodeURIComponent('😀'.repeat(255))}`, []],
    ['a % that encodes nothing', '?internalName=100%25+sure', []],
    ['a name that holds % and two digits', '?internalName=50%2525+off', ['+14155550125']],
    ['a group that holds % and two digits', '?reportingGroup=a%2540b', ['+14155550125']],
    ['a carrier that holds % and two digits', '?carrier=AT%2526T', ['+14155550125']],
    ['what those names would mean if they were encoded twice', '?internalName=50%25+off&reportingGroup=a%40b', []],
    ['empty pairs between others', `?&&&${[repeat('internalName', 50), repeat('carrier', 50)].join('&&')}`, []],
    ['a value with =', '?internalName=a=b', []],
    ['an encoded parameter name', '?%73ize=1', ['+14155550123']],
    ['empty pairs', '?&size=1&', ['+14155550123']],
  ];
  it.each(rows)('%s', async (_name, search, phoneNumbers) => {
    const response = await get(search);
    expectDescribed(response);
    expect(response.status).toBe(200);
    expect(pageOf(response).items.map(({ phoneNumber }) => phoneNumber)).toEqual(phoneNumbers);
  });

  it('50 names of the greatest length for each filter by name', async () => {
    const names = ['reportingGroup', 'internalName', 'carrier'].map((name) => repeat(name, 50, 'x'.repeat(255)));
    expect((await get(`?${names.join('&')}`)).status).toBe(200);
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
    ['a size given twice', '?size=1&size=1', 'size', /more than once/],
    ['a number whose + came as a space', '?phoneNumber=+14155550123', 'phoneNumber', /%2B/],
    [
      'a number with spaces and punctuation',
      '?phoneNumber=%2B1+(415)+555-0123',
      'phoneNumber',
      /did you mean \+14155550123\?$/,
    ],
    ...['14155550123', '%2B0155', '%2B1234567890123456', '%2B1', '%2B14155550123%0A'].map(
      (number): Row => [`the number ${number}`, `?phoneNumber=${number}`, 'phoneNumber', /E\.164/],
    ),
    [
      'a number between bidirectional marks',
      '?phoneNumber=%E2%80%AA%2B14155550123%E2%80%AC',
      'phoneNumber',
      /^"\\u202a\+14155550123\\u202c" is not .*; did you mean \+14155550123\?$/,
    ],
    ['a full-width plus', '?phoneNumber=%EF%BC%8B14155550123', 'phoneNumber', /^"＋1.*mean \+14155550123\?$/],
    [
      'a number with no-break spaces',
      '?phoneNumber=%2B1%C2%A0415%C2%A05550123',
      'phoneNumber',
      /"\+1\\u00a0415.*mean \+1/,
    ],
    ['a number with a byte order mark', '?phoneNumber=%EF%BB%BF%2B14155550123', 'phoneNumber', /^"\\ufeff\+.*mean \+1/],
    ['a status with a zero-width space', '?status=approved%E2%80%8B', 'status', /^"approved\\u200b".*mean approved\?$/],
    ['a size with a zero-width space', '?size=5%E2%80%8B', 'size', /plain digits, not "5\\u200b"$/],
    [
      'a parameter with a zero-width space',
      '?carrier%E2%80%8B=x',
      'carrier\u200b',
      /^is not a parameter \(carrier\\u200b\); did you mean carrier\?$/,
    ],
    ['two numbers', '?phoneNumber=%2B12&phoneNumber=%2B13', 'phoneNumber', /more than once/],
    ...[`urn:uuid:${UUID}`, `%7B${UUID}%7D`, UUID.replaceAll('-', '')].map(
      (id): Row => [`the UUID ${id}`, `?businessProfileId=${id}`, 'businessProfileId', /8-4-4-4-12/],
    ),
    ['an empty group among others', '?reportingGroup=a&reportingGroup=', 'reportingGroup', /empty/],
    ['a parameter without =', '?carrier', 'carrier', /empty/],
    ['a name of 256 characters', `?internalName=${'x'.repeat(256)}`, 'internalName', /256 characters; at most 255/],
    ['a control character', '?internalName=a%0Ab', 'internalName', /control characters/],
    ['a control character of Latin-1', '?internalName=a%C2%85b', 'internalName', /control characters/],
    ['a NUL byte', '?carrier=%00', 'carrier', /control characters/],
    ['51 values', `?${repeat('carrier', 51)}`, 'carrier', /51 values; at most 50/],
    ['an unknown feature', '?feature=fax', 'feature', /brandedCallerId, spamRemediation/],
    ['a feature in another case', '?feature=brandedcallerid', 'feature', /did you mean brandedCallerId/],
    ['a misspelt status', '?status=aproved', 'status', /did you mean approved/],
    ['a status with an underscore', '?status=submitted_for_review', 'status', /did you mean submitted for review/],
    ['an unknown detailed status', '?detailedStatus=approved', 'detailedStatus', /detailed status/],
    ['two statuses behind a comma', '?status=approved,rejected', 'status', /repeat the parameter/],
    [
      'two features behind an encoded comma',
      '?feature=brandedCallerId%2C+spamRemediation',
      'feature',
      /repeat the par/,
    ],
    ['a size that is encoded twice', '?size=%2531%2530', 'size', /encoded twice; send 10/],
    [
      'a UUID that is encoded twice',
      `?businessProfileId=%2536${UUID.slice(1)}`,
      'businessProfileId',
      /twice; send 6513/,
    ],
    ['a feature that is encoded twice', '?feature=%2562rand', 'feature', /encoded twice; send brand/],
    ['a number that is encoded twice', '?phoneNumber=%252B14155550123', 'phoneNumber', /twice; send %2B14155550123/],
    [
      'a status that is encoded twice',
      '?status=submitted%2520for%2520review',
      'status',
      /send submitted%20for%20review/,
    ],
    ...['cursor', 'page', 'page_token', 'pageToken', 'next_cursor', 'offset', 'after'].map(
      (name): Row => [`${name} for nextCursor`, `?${name}=1`, name, /not a parameter.* did you mean nextCursor/],
    ),
    ...['limit', 'pageSize', 'per_page', 'page[size]', 'count', 'perPage', 'PAGE_SIZE'].map(
      (name): Row => [`${name} for size`, `?${name}=1`, name, /did you mean size/],
    ),
    ['profile for businessProfileId', `?profile_id=${UUID}`, 'profile_id', /did you mean businessProfileId/],
    ['a misspelt parameter', '?reportinggroup=a', 'reportinggroup', /did you mean reportingGroup/],
    ['brackets', '?carrier[]=a', 'carrier[]', /repeat carrier without brackets/],
    ['a parameter named like a member of every object', '?__proto__=a', '__proto__', /not a parameter/],
    ['broken percent-encoding', '?carrier=%ZZ', 'carrier', /percent-encoded/],
    ['bytes that are not UTF-8', '?carrier=%FF', 'carrier', /percent-encoded/],
    ['a parameter name that is not UTF-8', '?%FF=a', '%FF', /percent-encoded/],
    ...[...parameters.keys()].map((name): Row => [`an empty ${name}`, `?${name}=`, name, /empty/]),
    ['two cursors', '?nextCursor=a&nextCursor=b', 'nextCursor', /more than once/],
  ];
  it.each(rows)('%s', async (_name, search, parameter, detail) => {
    const response = await get(search);
    expectDescribed(response);
    expect(response.status).toBe(400);
    const problem = problemOf(response);
    expect(problem).toMatchObject({
      status: 400,
      type: '/problems/invalid-request',
      title: 'Invalid Request',
      message: 'Invalid Request',
    });
    expect(problem.detail).toMatch(/[^?]\.$|\?$/);
    expect(problem.errors?.find((fault) => fault.parameter === parameter)?.detail).toMatch(detail);
  });

  it('all faults at once, whether or not the validator finds them', async () => {
    const response = await get(
      '?size=0&carier=x&status=aproved&phoneNumber=+1&feature=&detailedStatus=x&nextCursor=abc&internalName=%FF&status=lost',
    );
    expectDescribed(response);
    const named = problemOf(response).errors?.map(({ parameter }) => parameter);
    expect(named?.sort().join(' ')).toBe(
      'carier detailedStatus feature internalName nextCursor phoneNumber size status status',
    );
  });

  it.each([
    ['of 501 pairs', repeat('a', 501)],
    ['of 60,000 pairs', Array(60_000).fill('a').join('&')],
    ['of 501 right values', repeat('carrier', 501)],
  ])('a query %s as a single fault', async (_name, search) => {
    const response = await get(`?${search}`);
    expectDescribed(response);
    const detail = 'has more than 500 parameters';
    expect(problemOf(response)).toMatchObject({
      status: 400,
      detail: `The query ${detail}.`,
      errors: [{ parameter: '', detail }],
    });
  });

  it('the first 50 of 500 faults, and gives their number', async () => {
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

  it('any query in at most 64 KB, within the bounds of the contract', async () => {
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
          .slice(0, 120_000),
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
      { numRuns: 100 },
    );
  });

  it.each([
    ['control characters as names', `${'%00'.repeat(100)}=`],
    ['characters that cannot be seen as names', `${'%E2%80%AA'.repeat(20)}=`],
    ['characters that cannot be seen as values', `status=${'%F3%A0%80%81'.repeat(20)}`],
    ['control characters as values', `status=${'%00'.repeat(100)}`],
    ['values encoded twice', `status=${'%25E4%25BD%25A0'.repeat(13)}`],
    ['names of three bytes a character', `${'%E4%BD%A0'.repeat(20)}=`],
  ])('%s, as many as fit in 64 KB', async (_name, pair) => {
    const times = Math.min(500, Math.floor(120_000 / (pair.length + 1)));
    const response = await get(`?${Array(times).fill(pair).join('&')}`);
    expectDescribed(response);
    expect([response.status, problemOf(response).errors?.length]).toEqual([400, 50]);
    expect(Buffer.byteLength(response.text)).toBeLessThanOrEqual(64 * 1024);
  });
});

describe('paths, methods and conditional requests', () => {
  it.each([
    '/v1/brandedPhoneNumbers/',
    '/v1/brandedphonenumbers',
    '/V1/brandedPhoneNumbers',
    '/v1',
    '/nope',
    '/v1/%ZZ',
  ])('responds to GET %s with 404', async (path) => {
    const response = await request(service.app).get(path);
    expect(problemOf(response)).toMatchObject({ status: 404, type: '/problems/not-found', message: 'Not Found' });
    expect(response.status).toBe(404);
  });

  it.each(['+', '%2B', ''])(
    'responds with 404 and names the parameter if a number is in the path, after "%s"',
    async (plus) => {
      const response = await request(service.app).get(`/v1/brandedPhoneNumbers/${plus}14155550123`);
      expectDescribed(response);
      expect(problemOf(response)).toMatchObject({
        status: 404,
        detail: expect.stringContaining('/v1/brandedPhoneNumbers?phoneNumber=%2B14155550123.'),
      });
    },
  );

  it('responds with 400 and shows the encoded value if an & in it is not encoded', async () => {
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
      const response = await request(service.app)[method]('/v1/brandedPhoneNumbers');
      expectDescribed(response);
      expect([response.status, response.get('Allow')]).toEqual([405, 'GET, HEAD']);
      expect(problemOf(response).type).toBe('/problems/method-not-allowed');
    },
  );

  it.each(['', '?size=1', '?size=0', '?nextCursor=x'])(
    'responds to HEAD %s like to GET, without the body',
    async (search) => {
      const path = `/v1/brandedPhoneNumbers${search}`;
      // A superagent would ask for compression with GET only.
      const [byGet, byHead] = [
        await request(service.app).get(path).set('Accept-Encoding', 'identity'),
        await request(service.app).head(path),
      ];
      const headersOf = ({ headers }: typeof byGet) => ({ ...headers, date: '', 'x-request-id': '' });
      expect(byHead.status).toBe(byGet.status);
      expect(headersOf(byHead)).toEqual(headersOf(byGet));
      expect(Number(byHead.get('Content-Length'))).toBe(Buffer.byteLength(byGet.text));
      expect(byHead.text).toBeFalsy();
    },
  );

  it.each([
    ['as it is', (tag: string) => tag],
    ['among others', (tag: string) => `"x", ${tag}, W/"y"`],
    ['as a strong one', (tag: string) => tag.slice(2)],
    ['as any', () => '*'],
  ])(
    'responds with 304 if the tag is sent back %s, with and without the headers that fetch adds',
    async (_name, sent) => {
      const page = await get('?size=1');
      for (const fetched of [{}, { 'Cache-Control': 'no-cache', Pragma: 'no-cache' }]) {
        const headers = { 'If-None-Match': sent(page.get('ETag') ?? ''), ...fetched };
        const response = await get('?size=1').set(headers);
        expectDescribed(response);
        expect(response.status).toBe(304);
        for (const name of ['ETag', 'Vary', 'Cache-Control', 'Link']) expect(response.get(name)).toBe(page.get(name));
      }
    },
  );

  it('sends the page if another tag is sent back', async () => {
    const tag = (await get('?size=1')).get('ETag') ?? '';
    for (const other of [`${tag.slice(0, -2)}"`, tag.slice(0, -1), tag.replace('"', ''), 'W/"x"', '']) {
      expect((await get('?size=1').set('If-None-Match', other)).status).toBe(200);
    }
  });

  it('responds to HEAD with 304 if it would to GET', async () => {
    const head = request(service.app).head('/v1/brandedPhoneNumbers');
    expect((await head.set('If-None-Match', (await get('')).get('ETag') ?? '')).status).toBe(304);
  });

  it('keeps a request id that is safe to log, and replaces any other', async () => {
    const safe = ['2b4f9c1e-1234-4234-8234-123456789012', '00-4bf92f3577b34da6', '1234567890123456', 'run-123456'];
    for (const id of safe) expect((await get('').set('X-Request-Id', id)).get('X-Request-Id')).toBe(id);
    const numbers = ['14155550101', '1-415-555-0101', 'tel:14155550101', 'call-415.555.0101_b'];
    for (const unsafe of [...numbers, 'a b"c', `bpn_${'A'.repeat(43)}`, `Bearer:bpn_${'A'.repeat(43)}`]) {
      expect((await get('').set('X-Request-Id', unsafe)).get('X-Request-Id')).toMatch(/^[0-9a-f-]{36}$/);
    }
  });
});
