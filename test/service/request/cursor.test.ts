/** Cursors, including forged ones: anyone can compute the checksum, so the content must be checked like a parameter. */
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import request from 'supertest';
import { beforeAll, describe, expect, inject, it } from 'vitest';
import type { ListBrandedPhoneNumbersRequest } from '../../../generated/types/apis/index.js';
import { parameters } from '../../../src/contract.js';
import { filterOf } from '../../../src/page/filter.js';
import { decodeCursor, encodeCursor } from '../../../src/service/request/cursor.js';
import { numberWith, write } from '../../support/numbers.js';
import { expectDescribed, pageOf, problemOf } from '../../support/response.js';
import { useService } from '../../support/service.js';

const service = useService();
const get = (nextCursor: string) => request(service.url).get('/v1/brandedPhoneNumbers').query({ size: 1, nextCursor });
const NUMBERS = ['+14155550123', '+14155550124'];
const noFilter = filterOf({});
/** The text of that filter. A cursor of version 1 contains its digest. */
const NO_FILTER_TEXT =
  '{"phoneNumber":null,"businessProfileId":null,"reportingGroups":null,"internalNames":null,"carriers":null,' +
  '"features":null,"detailedStatuses":null,"statuses":null,"dottedStatuses":null}';
const digest = (content: string | Buffer) => createHash('sha256').update(content).digest().subarray(0, 8);

/** Returns a cursor with any content and a correct checksum, as an attacker could make it. */
function forge(content: Buffer, { version = 1, filter = digest(NO_FILTER_TEXT) } = {}): string {
  const body = Buffer.concat([Buffer.of(version), filter, content]);
  return Buffer.concat([body, digest(body)]).toString('base64url');
}

const phoneNumbers = fc.stringMatching(/^\+[1-9][0-9]{1,14}$/);
/** Texts like the content of a real cursor, which is a phone number without its +. */
const nearPhoneNumbers = fc.stringMatching(/^[0-9+' ;\n-]{0,18}$/).map((text) => Buffer.from(text));
const edgeCases = ['\0', "'--", '\xff\xff', '01415', '1', '1234567890123456', '14155550123\n', '+14155550123'];
const anyBytes = fc.uint8Array({ maxLength: 70 }).map((bytes) => Buffer.from(bytes));

beforeAll(() =>
  write(
    service.database,
    NUMBERS.map((phoneNumber) => numberWith({ phoneNumber })),
  ),
);

describe('a cursor', () => {
  it('made by forge() is the one that the service returns and accepts', async () => {
    const { nextCursor } = pageOf(await request(service.url).get('/v1/brandedPhoneNumbers?size=1'));
    expect(nextCursor).toBe(forge(Buffer.from('14155550123')));
    expect(pageOf(await get(String(nextCursor))).items.map(({ phoneNumber }) => phoneNumber)).toEqual([NUMBERS[1]]);
  });

  it('is at most as long as the contract allows, and decodes to the encoded phone number', () => {
    const { maxLength } = parameters.get('nextCursor')?.schema ?? {};
    fc.assert(
      fc.property(phoneNumbers, (phoneNumber) => {
        const cursor = encodeCursor(phoneNumber, noFilter);
        expect(cursor.length).toBeLessThanOrEqual(maxLength as number);
        expect(decodeCursor(cursor)?.after).toBe(phoneNumber);
        expect(decodeCursor(cursor)?.isFor(noFilter)).toBe(true);
      }),
    );
  });
});

/** Cursors don't expire, so clients may still hold these. */
describe('a cursor of the first release', () => {
  it.each<[string, ListBrandedPhoneNumbersRequest, string, string]>([
    ['without filters', {}, '+14155550123', 'ASxwKy8ALTySMTQxNTU1NTAxMjM41eWJyXWP2A'],
    ['with a status', { status: ['submitted for review'] }, '+12745550127', 'AZD-WS_IzxWmMTI3NDU1NTAxMjceG7U8uvR2Ng'],
    [
      'with several filters in another order or case, some repeated',
      {
        businessProfileId: '6513270E-269E-4D37-B2A7-4DE452E6B438',
        reportingGroup: ['b', 'a', 'b'],
        carrier: ['AT&T'],
        feature: ['spamRemediation'],
        status: ['rejected.optOut', 'approved'],
      },
      '+14155550123',
      'AY7OCwQyma5_MTQxNTU1NTAxMjMBRDgyNOq4CA',
    ],
  ])('is accepted %s', (_name, filters, phoneNumber, cursor) => {
    const decoded = decodeCursor(cursor);
    expect([decoded?.after, decoded?.isFor(filterOf(filters))]).toEqual([phoneNumber, true]);
  });
});

describe('a forged cursor', () => {
  it('is rejected unless it contains a phone number', async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(anyBytes, nearPhoneNumbers), async (content) => {
        const isPhoneNumber = /^[1-9][0-9]{1,14}$/.test(content.toString('latin1'));
        const response = await get(forge(content));
        expectDescribed(response);
        expect(response.status).toBe(isPhoneNumber ? 200 : 400);
        if (!isPhoneNumber) expect(problemOf(response).type).toBe('/problems/invalid-cursor');
      }),
      { numRuns: 400 * inject('tries'), examples: edgeCases.map((content) => [Buffer.from(content, 'latin1')]) },
    );
  });

  it('is rejected if it has another version, missing bytes, or the digest of other filters', async () => {
    const number = Buffer.from('14155550123');
    const whole = Buffer.from(forge(number), 'base64url');
    const otherVersions = [forge(number, { version: 0 }), forge(number, { version: 2 })];
    const truncated = [0, 1, 7, 8, 9, 16, 17, 18].map((length) => whole.subarray(0, length).toString('base64url'));
    for (const cursor of [...otherVersions, ...truncated.filter(Boolean), forge(number, { filter: Buffer.alloc(8) })]) {
      const response = await get(cursor);
      expect([cursor, response.status, problemOf(response).type]).toEqual([cursor, 400, '/problems/invalid-cursor']);
    }
  });
});
