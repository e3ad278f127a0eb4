/** What an import reports about lines that it cannot accept. */
import { execSync } from 'node:child_process';
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { describe, expect, it, test } from 'vitest';
import { escapeHidden } from '../../../src/messages/shown.js';
import { importNumbers } from '../../../src/operator/numbers/import.js';
import { InputError } from '../../../src/operator/numbers/lines.js';
import { ndjson } from '../../support/ndjson.js';
import { isInstalled } from '../../support/programs.js';
import {
  database,
  entry,
  faultOf,
  faultsOf,
  ID,
  number,
  PROFILE,
  run,
  useDatabase,
  versions,
  without,
} from './importing.js';

useDatabase();

const E164 = 'must be a phone number in E.164, for example +14155550123';
const FEATURES = 'must be brandedCallerId or spamRemediation';

describe('a faulty line', () => {
  test.each<[unknown, string]>([
    ['4155550123', E164],
    ['+1', E164],
    [14155550123, E164],
    ['+44 (0)20 7946 0018', E164],
    ['+14155550123.0', E164],
    ['\u202a+14155550124\u202c', `("\\u202a+14155550124\\u202c") ${E164}`],
    ['+1\u00a0415\u200b5550124', `("+1\\u00a0415\\u200b5550124") ${E164}`],
    ['\ufeff+14155550124\n', `("\\ufeff+14155550124\\n") ${E164}`],
  ])('is reported if its phone number is %j', async (phoneNumber, reason) => {
    const name = typeof phoneNumber === 'string' ? `${escapeHidden(phoneNumber)}: ` : '';
    expect(await faultOf(number({ phoneNumber }))).toBe(`1: ${name}phoneNumber ${reason}`);
  });

  test.each([
    [{ brandingNameShort: 'Circle Bank Intl' }, 'brandingNameShort must have at most 15 characters'],
    [{ brandingNameLong: 'x'.repeat(33) }, 'brandingNameLong must have at most 32 characters'],
    [{ businessProfile: { ...PROFILE, businessName: '' } }, 'businessProfile.businessName must not be empty'],
    [{ internalName: 'a\tb' }, 'internalName ("a\\tb") must not contain control characters'],
    [{ internalName: 'a\u0000b' }, 'internalName ("a\\u0000b") must not contain control characters'],
    [{ internalName: 'a\u0085b' }, 'internalName ("a\\u0085b") must not contain control characters'],
    [{ internalName: 7 }, 'internalName must be text or null'],
    [{ businessProfile: { ...PROFILE, businessName: null } }, 'businessProfile.businessName must be text'],
    [{ businessProfile: null }, 'businessProfile must be an object, a business profile'],
    [
      { businessProfile: { ...PROFILE, id: `urn:uuid:${PROFILE.id}` } },
      'businessProfile.id must be a UUID in 8-4-4-4-12 hex form, for example 6513270e-269e-4d37-b2a7-4de452e6b438',
    ],
    [{ id: 'x' }, 'id must be a UUID, for example 0192f1c0-5b7e-7c3a-9d52-3f1f8a6e0b11'],
    [{ carrierStatuses: null }, 'carrierStatuses must be an array'],
    [{ carrierStatuses: Array(1001).fill(entry()) }, 'carrierStatuses must have at most 1000 entries'],
    [{ carrierStatuses: [entry(), 7] }, 'carrierStatuses[1] must be an object, a carrier status'],
    [
      { carrierStatuses: [entry({ feature: 'brandedCallerID\u200b' })] },
      `carrierStatuses[0].feature ("brandedCallerID\\u200b") ${FEATURES}; did you mean brandedCallerId?`,
    ],
    [
      { carrierStatuses: [entry({ carrier: 'AT&T\u202e' }), entry({ carrier: 'AT&T\u202e' })] },
      'carrierStatuses[1] repeats the entry for AT&T\\u202e and brandedCallerId',
    ],
    [
      { 'internalName\ufeff': 'x' },
      'internalName\\ufeff is not a member of a branded phone number; did you mean internalName?',
    ],
    [{ internalNam: 'x' }, 'internalNam is not a member of a branded phone number; did you mean internalName?'],
    [{ zzzzzzzzzzzz: 'x' }, 'zzzzzzzzzzzz is not a member of a branded phone number'],
    [
      { carrierStatuses: [entry({ detailStatus: 'x' })] },
      'carrierStatuses[0].detailStatus is not a member of a carrier status; did you mean detailedStatus?',
    ],
    [{ internalName: '\ud800' }, 'internalName has half of a surrogate pair (\\ud800 to \\udfff)'],
    [{ carrierStatuses: [entry({ carrier: 'a\udc00' })] }, 'carrier has half of a surrogate pair (\\ud800 to \\udfff)'],
  ])('is reported with the reason: %j', async (changes, reason) => {
    expect(await faultOf(number(changes))).toBe(`1: +14155550123: ${reason}`);
  });

  test.each(['phoneNumber', 'businessProfile', 'internalName', 'reportingGroup', 'carrierStatuses'])(
    'is reported if %s is missing',
    async (member) => {
      const name = member === 'phoneNumber' ? '' : '\\+14155550123: ';
      expect(await faultOf(without(number(), member))).toMatch(new RegExp(`^1: ${name}${member} is missing`));
    },
  );

  test('is reported with its unknown members first, which may be missing ones, misspelled', async () => {
    const { phoneNumber, businessProfile, ...rest } = number();
    const item = { phone_number: phoneNumber, business_profile: businessProfile, ...rest, internalName: 7, id: 'x' };
    expect(
      (await faultOf({ ...item, brandingNameShort: 7, brandingNameLong: 7, reportingGroup: 7 })).split('; '),
    ).toEqual([
      '1: phone_number is not a member of a branded phone number',
      'did you mean phoneNumber?',
      'business_profile is not a member of a branded phone number',
      'did you mean businessProfile?',
      'phoneNumber is missing',
      'businessProfile is missing',
      expect.stringMatching(/^\w+ must be/),
      'and 4 more',
    ]);
  });

  test.each([
    '2026-02-30T00:00:00Z',
    '2025-02-29T00:00:00Z',
    '2016-12-31T23:59:60Z',
    '0000-01-01T00:00:00Z',
    '0001-01-01T00:00:00+01:00',
    '9999-12-31T23:59:59-01:00',
    '9999-12-31T23:59:59.9999Z',
    '9999-12-31T23:59:59.9995Z',
    '2026-02-03 16:49:02Z',
    '2026-02-03T16:49:02',
    '2026-02-03T24:00:00Z',
    '2026-02-03T16:49:02+24:00',
    'infinity-is-no-time-at-all',
  ])('is reported if a time is %s', async (time) => {
    const years = /^(000[01]|9999)/.test(time)
      ? ', in the years 1 to 9999 after conversion to UTC and rounding to milliseconds'
      : '';
    const reason = `must be a time, for example 2026-02-03T16:49:02.748Z${years}`;
    expect(await faultOf(number({ createdAt: time }))).toBe(`1: +14155550123: createdAt ${reason}`);
    expect(await faultOf(number({ carrierStatuses: [entry({ createdAt: time })] }))).toBe(
      `1: +14155550123: carrierStatuses[0].createdAt ${reason}`,
    );
  });

  test('is reported if an object has a member twice', async () => {
    const line = JSON.stringify(number());
    expect(await faultsOf(line.replace('{', '{"internalName" : ": ", '))).toEqual([
      '1: +14155550123: internalName is given twice in one object',
    ]);
    expect(await faultsOf(line.replace('"carrier":', '"carrier":"x","c\\u0061rrier":'))).toEqual([
      '1: +14155550123: carrier is given twice in one object',
    ]);
    expect(await run(JSON.stringify(number({ internalName: ': "a": ' })))).toMatchObject({ numbers: 1 });
  });

  test.each([
    ['not JSON', '{"phoneNumber":', ''],
    ['two items', `${JSON.stringify(number())},${JSON.stringify(number())}`, '\\+14155550123: '],
  ])('is reported to be %s', async (_, line, name) => {
    expect(await faultsOf(line)).toEqual([expect.stringMatching(`^1: ${name}is not valid JSON: `)]);
  });

  test.each(['null', '7', '"text"', '[]'])('is reported not to be an object: %s', async (line) => {
    expect(await faultsOf(`${JSON.stringify(number())}\n${line}`)).toEqual([
      '2: must be a JSON object, a branded phone number',
    ]);
  });

  test('is reported if it is not UTF-8', async () => {
    const line = Buffer.from(`${JSON.stringify(number())}\n`);
    const broken = Buffer.from(line);
    broken[broken.indexOf('Main')] = 0xff;
    expect(await faultsOf(Buffer.concat([line, broken]))).toEqual(['2: +14155550123: is not valid UTF-8']);
  });

  test('is reported if it is too long, and the next lines are read', async () => {
    const long = JSON.stringify(number({ internalName: 'x'.repeat(5 * 1024 * 1024) }));
    const afterBlanks = ' '.repeat(5 * 1024 * 1024) + JSON.stringify(number());
    expect(await faultsOf(`${long}\n\n7\n${afterBlanks}\n`)).toEqual([
      '1: +14155550123: is longer than 4 MiB',
      '3: must be a JSON object, a branded phone number',
      '4: is longer than 4 MiB',
    ]);
  });

  test.each([
    ['an unknown member', 'zzzzzzzz', 'zzzzzzzz is not a member of a branded phone number'],
    ['an entry', 'carrierStatuses', 'carrierStatuses[0] must be an object, a carrier status'],
    ['a feature', 'feature', `carrierStatuses[0].feature ${FEATURES}`],
  ])('is reported if %s is nested 200,000 levels deep', async (_what, member, reason) => {
    const item = member === 'feature' ? number({ carrierStatuses: [entry({ feature: 0 })] }) : number({ [member]: 0 });
    const nested = `${'['.repeat(200_000)}${']'.repeat(200_000)}`;
    const line = JSON.stringify(item).replace(`"${member}":0`, `"${member}":${nested}`);
    expect(await faultsOf(`${JSON.stringify(number({ phoneNumber: '+19' }))}\n${line}\n`)).toEqual([
      `2: +14155550123: ${reason}`,
    ]);
  });
});

describe('lines that contradict each other', () => {
  const second = (changes: object) => number({ phoneNumber: '+14155550124', ...changes });

  test.each([
    ['the same phoneNumber', [number(), number()], '3: +14155550123: phoneNumber is given twice; see line 1'],
    [
      'the same id',
      [number({ id: ID }), second({ id: ID.toUpperCase() })],
      `3: +14155550124: id ${ID} belongs to another number; see line 1`,
    ],
    [
      'a business profile with two names',
      [number(), second({ businessProfile: { ...PROFILE, businessName: 'Square' } })],
      `3: +14155550124: businessProfile.businessName differs from an earlier one of businessProfile.id ${PROFILE.id}; see line 1`,
    ],
    [
      'a business profile with two statuses',
      [number(), second({ businessProfile: { ...PROFILE, status: 'rejected' } })],
      `3: +14155550124: businessProfile.status differs from an earlier one of businessProfile.id ${PROFILE.id}; see line 1`,
    ],
  ])('are reported: %s', async (_what, lines, fault) => {
    expect(await faultsOf(lines.map((line) => JSON.stringify(line)).join('\n\n'))).toEqual([fault]);
  });

  test('are reported together with invalid lines, in order', async () => {
    const file = `${JSON.stringify(number({ id: ID }))}\n7\n${JSON.stringify(number({ id: ID }))}\n[]\n`;
    expect((await faultsOf(file)).map((fault) => fault.slice(0, 20))).toEqual([
      '2: must be a JSON ob',
      '3: +14155550123: pho',
      '4: must be a JSON ob',
    ]);
  });

  test('are reported if they contradict the database, and change nothing', async () => {
    await run([number({ id: ID })]);
    const before = await versions();
    await expect(run([second({}), number({ phoneNumber: '+14155550125', id: ID })])).rejects.toThrow(
      `line 2: +14155550125: id ${ID} belongs to another number, +14155550123`,
    );
    expect(await versions()).toEqual(before);
  });
});

test('an import reads no further after a hundred faulty lines', async () => {
  let lines = 0;
  const endless = (function* () {
    for (; lines < 1_000_000; lines++) yield Buffer.from('{}\n');
  })();
  await expect(importNumbers(database.url, Readable.from(endless))).rejects.toThrow(InputError);
  expect(lines).toBeLessThan(10_000);
});

test('an import reports the first hundred of many faulty lines', async () => {
  const good = JSON.stringify(number());
  const faults = await faultsOf(`${good}\n${good}\n${'7\n'.repeat(300)}`);
  expect(faults).toHaveLength(100);
  expect(faults[0]).toMatch(/^2: \+14155550123: phoneNumber/);
  expect(faults[99]).toMatch(/^101: /);
});

describe('an input whose first line is not a JSON object', () => {
  const items = [number(), number({ phoneNumber: '+14155550124' })];
  const array = JSON.stringify(items);
  const NOT_NDJSON =
    /^[12]: is not a JSON object; the input must be NDJSON: .* spreadsheet, see docs\/imports\.md; .*: jq -c '\.\[\]' FILE \| branded-phone-numbers import -$/;

  it.each<[string, string | Buffer]>([
    ['gzip', gzipSync(ndjson(items))],
    ['UTF-16', Buffer.from(`\ufeff${ndjson(items)}`, 'utf16le')],
    ['UTF-16 without a byte order mark', Buffer.from(ndjson(items), 'utf16le')],
    ['a JSON array', array],
    ['a JSON array on several lines', `\n${array.replaceAll('},{', '},\n{')}`],
    ['pretty-printed JSON', JSON.stringify(items[0], null, 2)],
    ['CSV', 'phoneNumber,internalName\n+14155550123,x\n'],
    ['null', 'null'],
  ])('is rejected with one message that says what NDJSON is: %s', async (_format, input) => {
    expect(await faultsOf(input)).toEqual([expect.stringMatching(NOT_NDJSON)]);
  });

  it.runIf(isInstalled('jq'))('is imported by the command in its message, if it is a JSON array', async () => {
    const [fault = ''] = await faultsOf(array);
    const [, program = ''] = /(jq .*) FILE/.exec(fault) ?? [];
    expect(await run(execSync(program, { input: array }))).toMatchObject({ numbers: 2 });
  });
});
