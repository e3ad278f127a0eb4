/**
 * Part of `npm run build`: generates the Postman collection in dist/ from the contract: a request for each example of a parameter,
 * and a walk through all pages.
 *
 * openapi-to-postmanv2 is not usable: it generates a single request with all examples, whose values Postman sends
 * unencoded, including `+` and `&`, and its output differs each time.
 */
import { writeFileSync } from 'node:fs';
import { listBrandedPhoneNumbers as operation } from '../generated/types/apis/index.js';
import { contract, type Parameter, parameters } from '../src/contract.js';

/** A row of Postman's parameter table; `value` is percent-encoded, because Postman encodes neither `+` nor `&`. */
interface QueryEntry {
  key: string;
  value: string;
  description?: string;
  disabled?: true;
}

/** The value of an example: an array if the parameter may be repeated. */
type Value = string | number | (string | number)[];

const entriesOf = (name: string, value: Value): QueryEntry[] =>
  [value].flat().map((single) => ({ key: name, value: encodeURIComponent(single) }));

/** The cursor has no example: its value is a variable, which the request for the previous page sets. */
const CURSOR: QueryEntry = { key: 'nextCursor', value: '{{nextCursor}}' };

/** Returns the rows in `enabled` and, for each parameter that they leave out, a disabled row with an example. */
function query(enabled: QueryEntry[]): QueryEntry[] {
  return [...parameters.values()].flatMap(({ name, description = '', examples = {} }) => {
    const sent = enabled.filter(({ key }) => key === name);
    const [example] = Object.values(examples);
    const [offered = CURSOR] = example ? entriesOf(name, example.value as Value) : [];
    const rows = sent.length > 0 ? sent : [{ ...offered, disabled: true as const }];
    return rows.map((entry) => ({ ...entry, description: description.trim() }));
  });
}

function request(name: string, parameters: QueryEntry[], description?: string) {
  return {
    name,
    request: {
      method: operation.method,
      ...(description && { description }),
      header: [{ key: 'Accept', value: 'application/json, application/problem+json' }],
      url: { host: ['{{baseUrl}}'], path: operation.path.slice(1).split('/'), query: query(parameters) },
    },
  };
}

const test = (code: string) => ({ listen: 'test', script: { type: 'text/javascript', exec: code.trim().split('\n') } });

/**
 * Postman sends a collection faster than the rate limit allows, so a rejected request is sent again after
 * `Retry-After`.
 */
const RETRIES = `
const tries = (pm.variables.get('tries') ?? 0) + 1;
if ([429, 503].includes(pm.response.code) && tries < 5) {
  pm.variables.set('tries', tries);
  const seconds = Math.min(Number(pm.response.headers.get('Retry-After')) || 1, 60);
  setTimeout(() => pm.execution.setNextRequest(pm.info.requestId), 1000 * seconds);
} else {
  pm.variables.unset('tries');
  pm.test('The response is a page', () => pm.response.to.have.status(200));
}`;

const KEEP_CURSOR = `
if (pm.response.code === 200) {
  pm.collectionVariables.set('nextCursor', pm.response.json().nextCursor ?? '');
}`;

function requestsOf({ name, description, examples = {} }: Parameter) {
  return {
    name,
    description,
    item: Object.values(examples).map(({ summary = '', value }) =>
      request(`${name}: ${summary}`, entriesOf(name, value as Value)),
    ),
  };
}

const collection = {
  info: {
    name: contract.info.title,
    description: contract.info.description,
    version: contract.info.version,
    schema: 'https://schema.getpostman.com/json/collection/v2.1.0/collection.json',
  },
  variable: [
    { key: 'baseUrl', value: 'http://localhost:3000', description: 'The address of the service.' },
    { key: 'apiKey', value: '', description: 'An API key, if the service requires one.' },
    { key: 'nextCursor', value: '', description: 'Set by "First page" and "Next page".' },
  ],
  auth: {
    type: 'bearer',
    bearer: [{ key: 'token', value: '{{apiKey}}', type: 'string' }],
  },
  event: [test(RETRIES)],
  item: [
    {
      name: 'A walk',
      description: 'Send "First page", then "Next page" until `nextCursor` is `null`.',
      event: [test(KEEP_CURSOR)],
      item: [request('First page', []), request('Next page', [CURSOR])],
    },
    ...[...parameters.values()].filter(({ examples }) => examples).map(requestsOf),
  ],
};

writeFileSync('dist/branded-phone-numbers.postman_collection.json', `${JSON.stringify(collection, null, 2)}\n`);
