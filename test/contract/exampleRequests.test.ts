/** Every example of a parameter, sent to the service with the demo data: what the documentation shows works. */
import { createReadStream, readFileSync } from 'node:fs';
import { join } from 'node:path';
import request from 'supertest';
import { beforeAll, describe, expect, it } from 'vitest';
import { contract, parameters, resolve } from '../../src/contract.js';
import { importNumbers } from '../../src/numbers/import.js';
import { packageFolder } from '../../src/packageFolder.js';
import { expectDescribed, pageOf } from '../answer.js';
import { useService } from '../service.js';

const PATH = '/v1/brandedPhoneNumbers';

const service = useService();
beforeAll(() => importNumbers(service.database, createReadStream(join(packageFolder, 'demo', 'numbers.ndjson'))));

const examples = [...parameters.values()].flatMap(({ name, examples = {} }) =>
  Object.values(examples).map(({ summary, value }) => ({
    name,
    summary,
    query: new URLSearchParams([value].flat().map((each) => [name, String(each)] as [string, string])),
  })),
);

/** How many numbers there are for a query, in pages of 100. */
async function countOf(query = ''): Promise<number> {
  let count = 0;
  for (let cursor: string | null = ''; cursor !== null; ) {
    const response = await request(service.app).get(`${PATH}?size=100&${query}${cursor && `&nextCursor=${cursor}`}`);
    expect(response.status).toBe(200);
    expectDescribed(response);
    const { items, nextCursor } = pageOf(response);
    count += items.length;
    cursor = nextCursor;
  }
  return count;
}

/** More than a page, so that there is a next one to try, and few enough to show that the filter has an effect. */
async function expectMoreThanAPageButNotAll(query: URLSearchParams): Promise<void> {
  const found = await countOf(String(query));
  expect(found).toBeGreaterThan(25);
  expect(found).toBeLessThan((await countOf()) * 0.9);
}

describe('Every example of a parameter is accepted, and its filter has an effect:', () => {
  it.each(examples)('$name: $summary', async ({ name, query }) => {
    if (name === 'size') return expect((await request(service.app).get(`${PATH}?${query}`)).status).toBe(200);
    if (name === 'phoneNumber') return expect(await countOf(String(query))).toBe(1);
    await expectMoreThanAPageButNotAll(query);
  });
});

describe('Every request that /docs offers finds numbers:', () => {
  const [operation] = Object.values(contract.paths).map(({ get }) => get);

  it.each(operation?.['x-requests'] ?? [])('$summary', async ({ examples: chosen }) => {
    const query = Object.entries(chosen).flatMap(([name, example]) =>
      [parameters.get(name)?.examples?.[example]?.value]
        .flat()
        .map((value) => [name, String(value)] as [string, string]),
    );
    expect(await countOf(String(new URLSearchParams(query)))).toBeGreaterThan(0);
  });
});

describe('The demo data have', () => {
  const closed = [...parameters.values()]
    .map(({ name, schema }) => ({ name, values: resolve(schema.items ?? {}).enum ?? [] }))
    .flatMap(({ name, values }) => values.map((value) => ({ name, value })));

  it.each(closed)('more than a page of numbers with $name $value, and others', async ({ name, value }) => {
    await expectMoreThanAPageButNotAll(new URLSearchParams([[name, value]]));
  });
});

it('The first request of the README is answered as it says', async () => {
  const readme = readFileSync(join(packageFolder, 'README.md'), 'utf8');
  const [, target = '', answer] =
    readme.match(/```sh\ncurl 'http:..127\.0\.0\.1:3000(.+)'\n```\n+```json\n(.+)\n```/) ?? [];
  expect((await request(service.app).get(target)).text).toBe(answer);
});
