/**
 * The Postman collection, from the contract: one request for each example of a parameter, and a walk. `npm run
 * docs:postman` writes it; with `--check` it writes nothing and fails if the file differs.
 *
 * Not openapi-to-postmanv2: it makes a single request with all examples at once, whose values Postman then sends
 * unencoded, `+` and `&` too, and its output differs each time.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { listBrandedPhoneNumbers as operation } from '../generated/types/apis/index.js';
import { contract, type Parameter, parameters } from '../src/contract.js';
import { packageFolder } from '../src/packageFolder.js';

/** A parameter as Postman's table shows it; `value` is percent-encoded, because Postman encodes neither `+` nor `&`. */
interface QueryEntry {
  key: string;
  value: string;
  description?: string;
  disabled?: true;
}

/** A value of an example: a single one, or those of a parameter that may be repeated. */
type Value = string | number | (string | number)[];

const entriesOf = (name: string, value: Value): QueryEntry[] =>
  [value].flat().map((each) => ({ key: name, value: encodeURIComponent(each) }));

/** Has no example: it is the variable that the request for the previous page has set. */
const CURSOR: QueryEntry = { key: 'nextCursor', value: '{{nextCursor}}' };

/** Every parameter; those of `given` are switched on, the others can be. */
function query(given: QueryEntry[]): QueryEntry[] {
  return [...parameters.values()].flatMap(({ name, description = '', examples = {} }) => {
    const on = given.filter(({ key }) => key === name);
    const [example] = Object.values(examples);
    const off = (example ? entriesOf(name, example.value as Value) : [CURSOR])
      .slice(0, 1)
      .map((entry) => ({ ...entry, disabled: true as const }));
    return (on.length > 0 ? on : off).map((entry) => ({ ...entry, description: description.trim() }));
  });
}

function request(name: string, given: QueryEntry[], description?: string) {
  return {
    name,
    request: {
      method: operation.method,
      ...(description && { description }),
      header: [{ key: 'Accept', value: 'application/json, application/problem+json' }],
      url: { host: ['{{baseUrl}}'], path: operation.path.slice(1).split('/'), query: query(given) },
    },
  };
}

const test = (code: string) => ({ listen: 'test', script: { type: 'text/javascript', exec: code.trim().split('\n') } });

/** A collection is sent faster than the rate limit allows: what was refused is sent again, after the time that the answer says. */
const RETRIES = `
const tries = (pm.variables.get('tries') ?? 0) + 1;
if ([429, 503].includes(pm.response.code) && tries < 5) {
  pm.variables.set('tries', tries);
  const seconds = Math.min(Number(pm.response.headers.get('Retry-After')) || 1, 60);
  setTimeout(() => pm.execution.setNextRequest(pm.info.requestId), 1000 * seconds);
} else {
  pm.variables.unset('tries');
  pm.test('The answer is a page', () => pm.response.to.have.status(200));
}`;

const CURSOR_OF_THE_PAGE = `
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
    { key: 'apiKey', value: '', description: 'An API key, where the service asks for one.' },
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
      event: [test(CURSOR_OF_THE_PAGE)],
      item: [request('First page', []), request('Next page', [CURSOR])],
    },
    ...[...parameters.values()].filter(({ examples }) => examples).map(requestsOf),
  ],
};

const file = join(packageFolder, 'clients', 'postman', 'branded-phone-numbers.postman_collection.json');
const right = `${JSON.stringify(collection, null, 2)}\n`;
if (!process.argv.includes('--check')) {
  writeFileSync(file, right);
  console.log('Wrote the Postman collection.');
} else if (readFileSync(file, 'utf8') === right) {
  console.log('The Postman collection is that of the contract.');
} else {
  console.error('The Postman collection is not that of the contract: run `npm run docs:postman`.');
  process.exitCode = 1;
}
