/** Every example of the contract matches its schema, and is exactly what the service accepts or returns. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { sql } from 'drizzle-orm';
import request, { type Response } from 'supertest';
import { beforeAll, describe, expect, it } from 'vitest';
import { contract, parameters, resolve, responses } from '../../src/contract.js';
import { createApiKey } from '../../src/keys/keys.js';
import { packageFolder } from '../../src/packageFolder.js';
import type { ProblemName } from '../../src/service/problem/problem.js';
import { importDemo } from '../support/demo.js';
import { searchOf } from '../support/reference.js';
import { ajv, type ErrorBody, problemOf } from '../support/response.js';
import { type TestService, useService, useServiceOn } from '../support/service.js';
import { useProxy } from '../support/toxicProxy.js';
import { walk } from '../support/walk.js';

interface Found {
  pointer: string;
  schema: string;
  value: unknown;
}

const pointerPart = (key: string) => key.replaceAll('~', '~0').replaceAll('/', '~1');

/** Returns every example below `node` with the pointer to its schema: of schemas, parameters, headers and bodies. */
function examplesIn(node: unknown, pointer = '#'): Found[] {
  if (typeof node !== 'object' || node === null) return [];
  const { schema, example, examples: several } = node as Record<string, unknown>;
  const at = schema ? `${pointer}/schema` : pointer;
  const own: Found[] = [];
  if (example !== undefined) own.push({ pointer: `${pointer}/example`, schema: at, value: example });
  for (const [name, shown] of Object.entries(several ?? {})) {
    const value = Array.isArray(several) ? shown : shown.value;
    own.push({ pointer: `${pointer}/examples/${name}`, schema: at, value });
  }
  const below = Object.entries(node).filter(([key]) => key !== 'example' && key !== 'examples');
  return [...own, ...below.flatMap(([key, child]) => examplesIn(child, `${pointer}/${pointerPart(key)}`))];
}

const found = examplesIn(contract);
/** Returns the examples of a component, such as `#/components/parameters/SizeParameter`. */
const examplesOf = (component: string) => found.filter(({ pointer }) => pointer.startsWith(`${component}/`));

const list = '/v1/brandedPhoneNumbers';
const service = useService();
const withLimit = useService({ RATE_LIMIT_PER_SECOND: '10' });
const withKeys = useService({ AUTH: 'api-key' });

beforeAll(() => importDemo(service.databaseUrl));

const get = ({ url }: TestService, target: string) => request(url).get(target);
const PAGE = '#/paths/~1v1~1brandedPhoneNumbers/get/responses/200';
const exampleOfHeader = (name: string) => String(examplesOf(`#/components/headers/${name}`)[0]?.value);
const cursor = new URLSearchParams(exampleOfHeader('Link').slice(1).split(/[?>]/)[1]).get('nextCursor');

/** Makes the service respond with each problem type. */
const provoke: Record<ProblemName, () => Promise<unknown>> = {
  'invalid-request': async () => problemOf(await get(service, `${list}?carier=AT%26T&size=0`)),
  'invalid-cursor': async () => problemOf(await get(service, `${list}?status=approved&nextCursor=${cursor}`)),
  unauthorized: async () => problemOf(await get(withKeys, list)),
  'not-found': async () => problemOf(await get(service, list.toLowerCase())),
  'method-not-allowed': async () => problemOf(await request(service.url).post(list)),
  'misdirected-request': async () => problemOf(await get(service, list).set('Host', 'numbers.example.com')),
  'rate-limit-exceeded': async () => {
    const burst: Response[] = await Promise.all(Array.from({ length: 30 }, () => get(withLimit, list)));
    return problemOf(burst.find(({ status }) => status === 429) as Response);
  },
  'internal-error': async () => {
    const { key } = await createApiKey(withKeys.database, 'test', { businessProfileIds: null });
    // No ordinary request causes an internal error, so the lookup of the key divides by zero.
    await withKeys.database.execute(sql`ALTER TABLE api_keys RENAME TO keys`);
    await withKeys.database.execute(sql`
      CREATE VIEW api_keys AS
      SELECT id, business_profile_ids, expires_at, revoked_at, last_used_on, (1 / length(left(hash, 0)))::text AS hash FROM keys`);
    return problemOf(await get(withKeys, list).auth(key, { type: 'bearer' }));
  },
  unavailable: async () => {
    const proxy = await useProxy(service.databaseUrl);
    const { url } = await useServiceOn(proxy.through(service.databaseUrl), { REQUEST_TIMEOUT_SECONDS: '2' });
    proxy.behave('refusing');
    return (await fetch(`${url}${list}`)).json();
  },
};

describe('every example matches its schema, and each component has one:', () => {
  const components = ['parameters', 'headers', 'responses'].flatMap((section) =>
    Object.entries(contract.components[section as 'parameters'] as Record<string, { content?: object }>)
      .filter(([name, { content }]) => name !== 'NextCursorParameter' && (section !== 'responses' || content))
      .map(([name]) => `#/components/${section}/${name}`),
  );

  it.each(components)('%s', (component) => {
    expect(examplesOf(component)).not.toEqual([]);
  });

  it.each(found)('$pointer', ({ schema, value }) => {
    const validate = ajv.getSchema(`contract${schema.replaceAll(/[^#/]+/g, encodeURIComponent)}`);
    expect(validate, `no schema at ${schema}`).toBeDefined();
    validate?.(value);
    expect(validate?.errors ?? []).toEqual([]);
  });
});

describe('the example of a problem is what the service returns:', () => {
  const shown = examplesOf('#/components/responses')
    .map(({ value }) => value as ErrorBody)
    .filter(({ type }) => type);

  it.each(shown)('$type', async (body) => {
    expect(await provoke[body.type.replace('/problems/', '') as ProblemName]()).toEqual(body);
  });

  it('each problem type has an example', () => {
    const kinds = Object.keys(contract['x-problems']).map((name) => `/problems/${name}`);
    expect(shown.map(({ type }) => type).sort()).toEqual(kinds.sort());
  });
});

it('the example of a page is the response to size=1 with the demo data, and its cursor is valid', async () => {
  const response = await get(service, `${list}?size=1`);
  expect(response.body).toEqual(examplesOf(PAGE)[0]?.value);
  for (const name of ['Link', 'ETag', 'Cache-Control', 'Vary'])
    expect(response.get(name)).toBe(exampleOfHeader(name.replace('-', '')));
  const [held] = examplesOf('#/components/parameters/IfNoneMatchParameter');
  await get(service, `${list}?size=1`).set('If-None-Match', String(held?.value)).expect(304);
  const { body } = await get(service, `${list}?nextCursor=${response.body.nextCursor}`).expect(200);
  expect(body.items).toHaveLength(25);
});

describe('every header that is meant for clients is described for', () => {
  /** Headers of HTTP itself, and those that only browsers read. */
  const COMMON = /^(date|connection|keep-alive|transfer-encoding|content-.*|x-content-type-options|access-control-.*)$/;

  it.each([
    ['200', '?size=1', {}],
    ['304', '?size=1', { 'If-None-Match': '*' }],
    ['400', `?${'carier=a&'.repeat(50)}`, {}],
  ])('a %s', async (status, query, headers) => {
    const response = await get(service, `${list}${query}`).set(headers).expect(Number(status));
    const sent = Object.keys(response.headers).filter((name) => !COMMON.test(name));
    const described = Object.keys(responses.get(status)?.headers ?? {}).map((name) => name.toLowerCase());
    expect(described).toEqual(expect.arrayContaining(sent));
    expect(sent).toContain('vary');
  });
});

it('the example of RateLimit has no remaining requests for a 429, and some for a page', () => {
  const shown = (status: string) => examplesOf(String(responses.get(status)?.headers?.RateLimit?.$ref))[0]?.value;
  expect(shown('429')).toMatch(/^"default";r=0;t=[1-9]$/);
  expect(shown('200')).toMatch(/^"default";r=[1-9];t=1$/);
});

/** Returns how many numbers match a query. */
const countOf = async (query: string) => (await walk(service.url, `size=100&${query}`)).flat().length;
let numbers: number;
beforeAll(async () => {
  numbers = await countOf('');
});

/** Fails unless a filter matches more than one page, but at most 90 % of the numbers. */
async function expectMoreThanAPageButNotAll(query: string): Promise<void> {
  const found = await countOf(query);
  expect(found).toBeGreaterThan(25);
  expect(found).toBeLessThan(numbers * 0.9);
}

describe('every example of a parameter is accepted and filters the demo data:', () => {
  const examples = [...parameters.values()].flatMap(({ name, examples = {} }) =>
    Object.values(examples).map(({ summary, value }) => ({ name, summary, value })),
  );

  it.each(examples)('$name: $summary', async ({ name, value }) => {
    const query = searchOf({ [name]: value as string | string[] });
    if (name === 'size') await get(service, `${list}?${query}`).expect(200);
    else if (name === 'phoneNumber') expect(await countOf(query)).toBe(1);
    else await expectMoreThanAPageButNotAll(query);
  });
});

describe('the demo data have', () => {
  const filters = [...parameters.values()]
    .map(({ name, schema }) => ({ name, values: resolve(schema.items ?? {}).enum ?? [] }))
    .flatMap(({ name, values }) => values.map((value) => ({ name, value })));

  it.each(filters)('more than a page of numbers with $name $value, and some without', async ({ name, value }) => {
    await expectMoreThanAPageButNotAll(searchOf({ [name]: value }));
  });
});

it('the first request in the README gets the response shown there', async () => {
  const readme = readFileSync(join(packageFolder, 'README.md'), 'utf8');
  const [, target = '', response] =
    readme.match(/```sh\ncurl 'http:..127\.0\.0\.1:3000(.+)'\n```\n+```json\n(.+)\n```/) ?? [];
  expect((await get(service, target)).text).toBe(response);
});
