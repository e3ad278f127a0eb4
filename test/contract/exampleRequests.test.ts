/** Every example of a parameter, sent to the service: what the documentation shows can be tried. */
import request from 'supertest';
import { describe, expect, it } from 'vitest';
import { parameters } from '../../src/contract.js';
import { expectDescribed } from '../answer.js';
import { useService } from '../service.js';

const service = useService();

const examples = [...parameters.values()].flatMap(({ name, examples = {} }) =>
  Object.values(examples).map(({ summary, value }) => ({
    name,
    summary,
    query: new URLSearchParams([value].flat().map((each) => [name, String(each)] as [string, string])),
  })),
);

describe('The service takes every example of a parameter', () => {
  it.each(examples)('$name: $summary', async ({ query }) => {
    const response = await request(service.app).get(`/v1/brandedPhoneNumbers?${query}`);
    expect(response.status).toBe(200);
    expectDescribed(response);
  });
});
