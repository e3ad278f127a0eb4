/** Every example of a parameter, sent to the service with the demo data: what the documentation shows can be tried. */
import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import request from 'supertest';
import { beforeAll, describe, expect, it } from 'vitest';
import type { BrandedPhoneNumberPage } from '../../generated/types/models/index.js';
import { contract, parameters } from '../../src/contract.js';
import { importNumbers } from '../../src/import/import.js';
import { packageFolder } from '../../src/packageFolder.js';
import { expectDescribed, pageOf } from '../answer.js';
import { useService } from '../service.js';

const service = useService();
beforeAll(() => importNumbers(service.database, createReadStream(join(packageFolder, 'demo', 'numbers.ndjson'))));

const examples = [...parameters.values()].flatMap(({ name, examples = {} }) =>
  Object.values(examples).map(({ summary, value }) => ({
    name,
    summary,
    query: new URLSearchParams([value].flat().map((each) => [name, String(each)] as [string, string])),
  })),
);

describe('The service takes every example of a parameter, and finds a number', () => {
  it.each(examples)('$name: $summary', async ({ query }) => {
    const response = await request(service.app).get(`/v1/brandedPhoneNumbers?${query}`);
    expect(response.status).toBe(200);
    expectDescribed(response);
    expect(pageOf(response).items).not.toEqual([]);
  });
});

it('The number in the example of an answer is in the demo data', async () => {
  const { Listed } = contract.components.responses as unknown as {
    Listed: { content: { 'application/json': { examples: { page: { value: BrandedPhoneNumberPage } } } } };
  };
  const [shown] = Listed.content['application/json'].examples.page.value.items;
  const response = await request(service.app).get('/v1/brandedPhoneNumbers?phoneNumber=%2B14155550123');
  expect(pageOf(response).items).toEqual([{ ...shown, id: expect.any(String), updatedAt: expect.any(String) }]);
});
