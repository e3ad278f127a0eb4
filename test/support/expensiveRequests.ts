/** Requests that cost as much as possible: valid, invalid and unusual ones. */

interface ExpensiveRequest {
  name: string;
  /** The target of the request. */
  path: string;
  headers?: Record<string, string>;
}

const PATH = '/v1/brandedPhoneNumbers';
/** Characters of the longest requests; the address and headers may have 16 KB together. */
const LONGEST = 15_000;

const list = (...pairs: string[]) => `${PATH}?${pairs.join('&').slice(0, LONGEST)}`;
const times = (count: number, pair: (i: number) => string) => Array.from({ length: count }, (_, i) => pair(i));
const fill = (text: string, length = LONGEST) => text.repeat(Math.ceil(length / text.length)).slice(0, length);

const DETAILED = ['pending', 'submitted', 'approved', 'rejected'].flatMap((state) => [
  `${state}.optIn`,
  `${state}.optOut`,
]);
const STATUSES = ['submitted+for+review', 'rejected', 'approved', 'unregistered', ...DETAILED];
const closed = (name: string, values: string[]) => times(50, (i) => `${name}=${values[i % values.length]}`);
/** Returns fifty values of `length` characters: an index of two digits, then `text` as each further character. */
const open = (name: string, text: string, length: number) =>
  times(50, (i) => `${name}=${String(i).padStart(2, '0')}${text.repeat(length - 2)}`);
const everywhere = (text: string, length: number) => [
  ...['reportingGroup', 'internalName', 'carrier'].flatMap((name) => open(name, text, length)),
  ...closed('feature', ['brandedCallerId', 'spamRemediation']),
  ...closed('status', STATUSES),
  ...closed('detailedStatus', DETAILED),
];
/** Values that exist in the data. */
const known = [
  ...times(50, (i) => `reportingGroup=Group+${i}`),
  ...times(50, (i) => `internalName=Line+${i}`),
  ...times(50, (i) => `carrier=${['AT%26T', 'T-Mobile', 'Verizon', 'US+Cellular'][i] ?? `Carrier+${i}`}`),
  ...closed('feature', ['brandedCallerId', 'spamRemediation']),
  ...closed('status', STATUSES),
  ...closed('detailedStatus', DETAILED),
];

const VALID: ExpensiveRequest[] = [
  { name: 'the first page', path: PATH },
  { name: 'a page of 100', path: list('size=100') },
  { name: 'a page of 100, compressed', path: list('size=100'), headers: { 'Accept-Encoding': 'br, gzip' } },
  { name: '50 existing values for every filter', path: list(...known, 'size=100') },
  { name: '50 values of 255 characters for every filter', path: list(...everywhere('x', 255)) },
  { name: '50 values for every filter, each character percent-encoded', path: list(...everywhere('%41', 240)) },
];

const FAULTY: ExpensiveRequest[] = [
  { name: '7,500 faults', path: list(fill('a&')) },
  { name: '500 unknown names', path: list(...times(500, (i) => `name${i}=x`)) },
  { name: '500 names that are nearly right', path: list(...times(500, (i) => `reportingGruop${i % 10}=x`)) },
  { name: '500 names of 230 characters', path: list(...times(500, () => `${'reportingGruop'.repeat(16)}=x`)) },
  { name: '500 values that are nearly right', path: list(...times(500, () => 'status=submited.optInn')) },
  { name: '500 values of 230 characters', path: list(...times(500, () => `status=${'submited.optInn'.repeat(15)}`)) },
  { name: '500 empty values', path: list(...times(500, () => 'carrier=')) },
  { name: '500 repeats', path: list(...times(500, () => 'phoneNumber=%2B14155550123')) },
  { name: '500 broken encodings', path: list(...times(500, () => `carrier=${'%41'.repeat(75)}%FF`)) },
  { name: '15,000 characters of %00', path: list(...times(199, () => `${'%00'.repeat(200)}=`)) },
  { name: 'a name of 15,000 characters', path: list(`${fill('reportingGruop', LONGEST - 10)}=x`) },
  { name: 'a name of 15,000 brackets', path: list(`${fill('[', LONGEST - 10)}=x`) },
  { name: 'a name of 15,000 percent-encoded characters', path: list(`${fill('%5B', LONGEST - 11)}=x`) },
  { name: 'a name of 15,000 = signs', path: list(fill('=')) },
  ...['status', 'carrier', 'size', 'phoneNumber', 'businessProfileId', 'nextCursor'].flatMap((name) => [
    { name: `${name} of 15,000 characters`, path: list(`${name}=${fill('1')}`) },
    { name: `${name} of 7,500 commas`, path: list(`${name}=${fill('a,')}`) },
    { name: `${name} encoded again and again`, path: list(`${name}=${fill('%25', LONGEST - (LONGEST % 3) - 60)}`) },
  ]),
  { name: 'misspelt values between commas', path: list(`status=${fill('aproved,')}`) },
];

const ODD: ExpensiveRequest[] = [
  { name: 'Accept-Encoding of 7,500 commas', path: list('size=100'), headers: { 'Accept-Encoding': fill('a,') } },
  {
    name: 'Accept-Encoding of 2,100 encodings',
    path: list('size=100'),
    headers: { 'Accept-Encoding': fill('br;q=0,') },
  },
  { name: 'If-None-Match of 7,500 commas', path: PATH, headers: { 'If-None-Match': fill('a,') } },
  { name: 'X-Forwarded-For of 1,600 addresses', path: PATH, headers: { 'X-Forwarded-For': fill('10.0.0.1,') } },
  { name: 'Authorization of 15,000 spaces', path: PATH, headers: { Authorization: `Bearer${fill(' ')}x` } },
  { name: 'X-Request-Id of 15,000 characters', path: PATH, headers: { 'X-Request-Id': fill('1-') } },
  { name: 'a path of 5,000 percent-encoded letters', path: `/${fill('%41')}` },
  { name: 'a path of 15,000 slashes', path: fill('/') },
  { name: 'a path of 15,000 dots and slashes', path: `/docs/${fill('../')}` },
  { name: 'a query of 15,000 question marks', path: `${PATH}?${fill('?')}` },
  { name: 'a path and 15,000 question marks with a percent', path: `/%41${fill('?')}` },
  { name: 'an unknown problem of 15,000 characters', path: `/problems/${fill('x')}` },
  { name: 'the contract as JSON', path: '/openapi.json' },
  { name: 'Swagger UI', path: '/docs' },
];

export const expensiveRequests = [...VALID, ...FAULTY, ...ODD];
