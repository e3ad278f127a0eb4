/** What an import reads of spreadsheets, and what it reports about those that it cannot accept. */
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { entry, faultsOf, number, PROFILE, run, stored, useDatabase } from './importing.js';

useDatabase();

const NAMES =
  'phoneNumber,businessProfile.id,businessProfile.businessName,businessProfile.status,internalName,brandingNameShort,brandingNameLong,reportingGroup';
const FIRST = `+14155550123,${PROFILE.id},Circle Bank,approved,"Sales, East",Circle Bank,,Control`;
const SECOND = `+14155550124,${PROFILE.id},Circle Bank,approved,Support,,,`;
/** With a row for each entry, with a column for each carrier and feature, and with a delimiter that is in no name. */
const ROWS = `${NAMES},carrier,feature,detailedStatus
${FIRST},AT&T,brandedCallerId,approved.optIn
${FIRST},Verizon,spamRemediation,pending.optIn
${SECOND},,,
`;
const WIDE = `${NAMES},AT&T brandedCallerId,Verizon spamRemediation
${FIRST},approved.optIn,pending.optIn
${SECOND},,
`;
const OPTIONAL = ROWS.replaceAll(/$/gm, ',,,').replace(',,,', ',status,id,carrierStatuses.createdAt');
const SEMICOLONS = ROWS.replaceAll(/[,"]/g, (c) => (c === ',' ? ';' : '')).replaceAll('Sales; East', 'Sales, East');

/** In a hundred chunks, which end anywhere. */
const csvOf = (csv: string | Buffer) => [csv, { formats: ['csv'] }, Math.ceil(csv.length / 100)] as const;

it.each([
  ['with a row for each entry', ROWS],
  ['with a column for each carrier and feature', WIDE],
  ['with a byte order mark, semicolons and CRLF, as of Excel', `\ufeff${SEMICOLONS.replaceAll('\n', '\r\n')}`],
  ['with a line that names the delimiter', `\ufeffsep=;\r\n${SEMICOLONS.replaceAll('\n', '\r\n')}`],
  ['with tabs and CR', SEMICOLONS.replaceAll(';', '\t').replaceAll('\n', '\r')],
  ['with quotes around every text, as of LibreOffice', SEMICOLONS.replaceAll(/[^;\n]+/g, '"$&"')],
  ['without an end of the last row, as of Google Sheets', WIDE.replaceAll('\n', '\r\n').trim()],
  ['with empty rows, and columns without a name', `;;\n\n${SEMICOLONS.replaceAll(/$/gm, '; ;')}\n`],
  ['without the empty cells at the end of a row', ROWS.replace(/(\n.*\n.*)(\n.*?),+\n$/, '$2$1\n')],
  ['with its columns in another order', WIDE.replaceAll(/^(.*?),(.*)$/gm, '$2,$1')],
  ['with columns that are ignored or empty', OPTIONAL.replace('pending.optIn,', 'pending.optIn,x')],
])('a spreadsheet is read %s', async (_, csv) => {
  expect(await run(...csvOf(csv))).toEqual({ numbers: 2, carrierStatuses: 2 });
  const pending = { carrier: 'Verizon', feature: 'spamRemediation', detailedStatus: 'pending.optIn' };
  const first = { internal_name: 'Sales, East', reporting_group: 'Control', carrier_statuses: [entry(), pending] };
  expect(await stored()).toMatchObject([
    { ...first, phone_number: '+14155550123', business_name: 'Circle Bank', branding_name_long: null },
    { phone_number: '+14155550124', internal_name: 'Support', reporting_group: null, carrier_statuses: [] },
  ]);
});

/** Returns the spreadsheet with a row for each entry, or a column for each carrier, with some text replaced. */
const rows = (searched: string | RegExp, by: string) => ROWS.replace(searched, by);
const wide = (searched: string | RegExp, by: string) => WIDE.replace(searched, by);
const phone = (by: string) => WIDE.replace('+14155550124', by);
const bytes = (text: string, encoding: BufferEncoding = 'utf8') => Buffer.from(text, encoding);
const lines = (csv: string) => csv.replaceAll('Sales,', 'Sales\r\n\n').replace('Support', '"a\rb"');

describe('a faulty spreadsheet', () => {
  it.each<[string, string | Buffer]>([
    ['1: is in UTF-16, which Excel calls Unicode Text: save it as "CSV UTF-8"', bytes(`\ufeff${ROWS}`, 'utf16le')],
    ['1: is in UTF-16', bytes(ROWS, 'utf16le')],
    ['4: is not in UTF-8, but probably in an older character set: ', bytes(rows('Support', 'Zürich'), 'latin1')],
    ['4: is not in UTF-8', bytes(rows('Support', '東')).subarray(0, -8)],
    ['1: is compressed or a file such as .xlsx, not CSV: save it as "CSV UTF-8"', bytes('PK\x03\x04\x14\n')],
    ['1: is compressed', gzipSync(ROWS)],
    ['1: is JSON, not CSV: NDJSON needs a file without the extension .csv', JSON.stringify(number())],
    ['1: must name the columns, without rows above: phoneNumber, ', rows(/.*\n/, '')],
    ['1: must name the columns, without rows above: ', rows(/^/, 'November,,\n\n')],
    ['1: has no column detailedStatus: add it', ROWS.replaceAll(/,[^,]*$/gm, '')],
    ['1: namelong is not a column of a spreadsheet of numbers; delete it, or ', rows(/$/m, ',namelong')],
    ['1: internalname is not a column of a spreadsheet of numbers; did you mean internalName?', rows('lN', 'ln')],
    ['1: AT&T brandedCallerID is not a column of .*; did you mean AT&T brandedCallerId?', wide('Id', 'ID')],
    ['1: has two columns internalName: delete one', wide(/$/m, ',internalName')],
    ['1: has neither a column carrier nor one such as AT&T ', WIDE.replaceAll(/,[^,]*,[^,]*$/gm, '')],
    ['1: has carrier and AT&T brandedCallerId: delete ', rows(/$/m, ',AT&T brandedCallerId')],
    ['2: 1.41556E+10: phoneNumber has become a number: make its ', ROWS.replaceAll(/^[+]\d+/gm, '1.41556E+10')],
    ['3: 14155550124.0: phoneNumber has become a number: make its column text, ', phone('14155550124.0')],
    ['3: 14155550124: phoneNumber has become a number: make its column text, ', phone('14155550124')],
    ['3: 415 555-0124: phoneNumber must be a phone number in E.164, for example .14155550123$', phone('415 555-0124')],
    ['3: phoneNumber must not be empty: repeat .* / 4: phoneNumber must ', ROWS.replaceAll(/^[+]\d+(?!.*AT)/gm, '')],
    ['2: +14155550123: has too many cells: put a cell that has the delimiter ', wide('"Sales, East"', 'Sales, East')],
    [
      '2: +14155550123: column 1 has a value, but no name: name or delete it',
      WIDE.replaceAll(/^(?=[+])/gm, '0,').replace(/^/, ','),
    ],
    ['4: has a quote that is not closed until the end of the file: close it, ', rows('Support', '"Support')],
    ['2: has a quote that is not closed or is in the wrong place: a cell with ', rows('East"', 'East')],
    ['4: has a quote that is not closed or is in the wrong place: ', rows('Support', 'Sup "port"')],
    ['4: is longer than 4 MiB: close its quote, if one is open', rows('Support', `"${'x'.repeat(5e6)}`)],
    ['4: has fewer cells than other rows, and no end: complete it, or end it with a line break', ROWS.slice(0, -3)],
    [
      '4: .14155550123: phoneNumber is given twice, but .*: sort by phoneNumber; see line 2$',
      rows(/(.*V.*\n)(.*\n)$/, '$2$1'),
    ],
    ['4: +14155550124: phoneNumber is given twice; see line 3$', `${WIDE}${SECOND},,\n`],
    [
      '3: +14155550123: carrier repeats the entry for AT&T and ',
      rows('Verizon,spamRemediation', 'AT&T,brandedCallerId'),
    ],
    ['3: +14155550123: internalName differs in another row of the number; see line 2$', rows(/East(?=.*V)/, 'West')],
    ['3: +14155550124: businessProfile.businessName differs from an ', wide('Bank,approved,Su', 'Trust,approved,Su')],
    ['3: +14155550123: carrier must not be empty / 3: +14155550123: feature must be ', rows('Verizon,spam', ',')],
    ['2: +14155550123: Verizon spamRemediation must be one of ', wide('pending.optIn', 'x')],
    ['2: +14155550123: internalName (.* / 8: +14155550124: internalName (', lines(ROWS)],
    ['4: +14155550124: businessProfile.status must ', rows('approved,Support', ',Support').replaceAll('\n', '\r')],
    ['4: +14155550124: businessProfile.status must ', rows('approved,Support', ',Support').replaceAll('\n', '\r\n')],
    ['2: +14155550123: detailedStatus must .* / 5: has a quote that ', `${rows('approved.optIn', 'x')}+14155550125,"`],
  ])('is reported: "line %s"', async (expected, csv) => {
    const pattern = expected.split(' / ').map((line) => `${line.replaceAll(/[+(]/g, '\\$&')}[^\n]*`);
    expect((await faultsOf(...csvOf(csv))).join('\n')).toMatch(new RegExp(`^${pattern.join('\n')}$`));
  });

  it('is reported with its first hundred faults, of which one number may have all', async () => {
    const faulty = Array.from({ length: 300 }, (_, i) => `${SECOND.replace('Support', `${i}`)},,,\n`);
    const faults = await faultsOf(...csvOf(`${ROWS}${faulty.join('')}`));
    expect(faults.map((fault) => Number.parseInt(fault, 10))).toEqual(Array.from({ length: 100 }, (_, i) => i + 5));
  });
});
