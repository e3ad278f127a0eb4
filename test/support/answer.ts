/** Checks an answer against the contract: its status, its media type, its headers and its body. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import type { Response } from 'supertest';
import { expect } from 'vitest';
import type { BrandedPhoneNumberPage, Problem } from '../../generated/types/models/index.js';
import { contract, resolve, type Schema } from '../../src/contract.js';

interface DescribedAnswer {
  headers?: Record<string, { $ref: string }>;
  content?: Record<string, { schema: Schema }>;
}

const ajv = new Ajv2020({ strict: false, allErrors: true });
formats.default(ajv);
ajv.addSchema(contract, 'contract');

const operation = contract.paths['/v1/brandedPhoneNumbers']?.get as unknown as {
  responses: Record<string, { $ref: string }>;
};

/** Fails unless this answer of the list operation is one that the contract describes, with every header that it requires. */
export function expectDescribed(response: Response): void {
  const reference = operation.responses[response.status];
  expect(reference, `the contract describes no ${response.status}`).toBeDefined();
  const described = resolve<DescribedAnswer>(reference as { $ref: string });
  const [mediaType, content] = Object.entries(described.content ?? {})[0] ?? [];
  if (!mediaType || !content) {
    expect(response.text).toBeFalsy();
    return;
  }
  expect(response.get('Content-Type')).toBe(`${mediaType}; charset=utf-8`);
  const path = content.schema.$ref?.replace('#', 'contract#') ?? '';
  const isValid = ajv.validate({ $ref: path }, JSON.parse(response.text));
  expect(isValid, ajv.errorsText()).toBe(true);
  // ajv ignores members that a schema leaves open; an answer has exactly those that are described.
  if (response.status === 200)
    for (const item of pageOf(response).items) expectExactMembers(item, 'BrandedPhoneNumber');
}

function expectExactMembers(value: unknown, schemaName: string): void {
  const properties = contract.components.schemas[schemaName]?.properties ?? {};
  expect(Object.keys(value as object)).toEqual(Object.keys(properties));
  for (const [member, property] of Object.entries(properties)) {
    const inner = (value as Record<string, unknown>)[member];
    const reference = (property.$ref ?? property.items?.$ref)?.split('/').at(-1);
    if (!reference || !contract.components.schemas[reference]?.properties) continue;
    for (const each of Array.isArray(inner) ? inner : [inner]) expectExactMembers(each, reference);
  }
}

/** The page that a 200 carries. */
export function pageOf(response: Response): BrandedPhoneNumberPage {
  return JSON.parse(response.text);
}

/** The problem that any other answer carries. */
export function problemOf(response: Response): Problem {
  return JSON.parse(response.text);
}
