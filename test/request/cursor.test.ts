/** Anyone can compute a cursor's checksum, so what a forged cursor holds has to be checked like any parameter. */
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import request from 'supertest';
import { beforeAll, describe, expect, it } from 'vitest';
import type { ListBrandedPhoneNumbersRequest } from '../../generated/types/apis/index.js';
import { parameters } from '../../src/contract.js';
import { decodeCursor, encodeCursor } from '../../src/request/cursor.js';
import { filterOf } from '../../src/request/filter.js';
import { expectDescribed, pageOf, problemOf } from '../support/answer.js';
import { numberWith, write } from '../support/numbers.js';
import { useService } from '../support/service.js';

const service = useService();
const get = (nextCursor: string) => request(service.app).get('/v1/brandedPhoneNumbers').query({ size: 1, nextCursor });
const NUMBERS = ['+14155550123', '+14155550124'];
const noFilter = filterOf({});
const digest = (content: string | Buffer) => createHash('sha256').update(content).digest().subarray(0, 8);

/** A cursor with a right checksum over anything, as an attacker would make it. */
function forge(content: Buffer, { version = 1, filter = digest(JSON.stringify(noFilter)) } = {}): string {
  const signed = Buffer.concat([Buffer.of(version), filter, content]);
  return Buffer.concat([signed, digest(signed)]).toString('base64url');
}

/** What a cursor holds for a phone number: the number without its +. */
const phoneNumbers = fc.stringMatching(/^\+[1-9][0-9]{1,14}$/);
const nearPhoneNumbers = fc.stringMatching(/^[0-9+' ;\n-]{0,18}$/).map((text) => Buffer.from(text));
const anyBytes = fc.uint8Array({ maxLength: 70 }).map((bytes) => Buffer.from(bytes));

beforeAll(() =>
  write(
    service.database,
    NUMBERS.map((phoneNumber) => numberWith({ phoneNumber })),
  ),
);

describe('a cursor', () => {
  it('is what the service itself makes', async () => {
    const { nextCursor } = pageOf(await request(service.app).get('/v1/brandedPhoneNumbers?size=1'));
    expect(nextCursor).toBe(forge(Buffer.from('14155550123')));
    expect(pageOf(await get(String(nextCursor))).items.map(({ phoneNumber }) => phoneNumber)).toEqual([NUMBERS[1]]);
  });

  it('leads back to any phone number that the contract allows, in no more characters than it allows', () => {
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

/** Cursors don't expire: these were handed out, and have to be understood for as long as the version is 1. */
describe('a cursor of the first release leads on', () => {
  it.each<[string, ListBrandedPhoneNumbersRequest, string, string]>([
    ['without filters', {}, '+14155550123', 'ASxwKy8ALTySMTQxNTU1NTAxMjM41eWJyXWP2A'],
    ['by status', { status: ['submitted for review'] }, '+12745550127', 'AZD-WS_IzxWmMTI3NDU1NTAxMjceG7U8uvR2Ng'],
    [
      'by several filters, no matter how they are written',
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
  ])('%s', (_name, asked, phoneNumber, cursor) => {
    const decoded = decodeCursor(cursor);
    expect([decoded?.after, decoded?.isFor(filterOf(asked))]).toEqual([phoneNumber, true]);
  });
});

describe('a forged cursor', () => {
  it.each([
    ['nothing', ''],
    ['a NUL byte', '\0'],
    ['SQL', "'; select 1--"],
    ['bytes above ASCII', '\xff\xff'],
    ['a number that begins with 0', '01415'],
    ['one digit', '1'],
    ['16 digits', '1234567890123456'],
    ['a line break behind a number', '14155550123\n'],
    ['a second +', '+14155550123'],
  ])('that holds %s is refused as an invalid cursor', async (_name, content) => {
    const response = await get(forge(Buffer.from(content, 'latin1')));
    expectDescribed(response);
    expect([response.status, problemOf(response).type]).toEqual([400, '/problems/invalid-cursor']);
  });

  it('is refused unless it holds a phone number', async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(anyBytes, nearPhoneNumbers), async (content) => {
        const isPhoneNumber = /^[1-9][0-9]{1,14}$/.test(content.toString('latin1'));
        const response = await get(forge(content));
        expect(response.status).toBe(isPhoneNumber ? 200 : 400);
        if (!isPhoneNumber) expect(problemOf(response).type).toBe('/problems/invalid-cursor');
      }),
      { numRuns: 200 },
    );
  });

  it('is refused with another version, with bytes missing, and with the digest of other filters', async () => {
    const number = Buffer.from('14155550123');
    const whole = Buffer.from(forge(number), 'base64url');
    const others = [forge(number, { version: 0 }), forge(number, { version: 2 })];
    const cuts = [0, 1, 7, 8, 9, 16, 17, 18].map((length) => whole.subarray(0, length).toString('base64url'));
    for (const cursor of [...others, ...cuts.filter(Boolean), forge(number, { filter: Buffer.alloc(8) })]) {
      const response = await get(cursor);
      expect([cursor, response.status, problemOf(response).type]).toEqual([cursor, 400, '/problems/invalid-cursor']);
    }
  });
});
