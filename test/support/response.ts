/** Checks a response against the contract: its status, its media type and its body. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import type { Response } from 'supertest';
import { expect } from 'vitest';
import type { ListBrandedPhoneNumbersResponses as Responses } from '../../generated/types/apis/index.js';
import { contract, responses } from '../../src/contract.js';

/** Has the contract's schemas, at addresses that begin with `contract#`. */
export const ajv = new Ajv2020({ strict: false, allErrors: true });
formats.default(ajv);
ajv.addSchema(contract, 'contract');

/** Fails unless the contract describes this response of the list operation. */
export function expectDescribed(response: Response): void {
  const described = responses.get(String(response.status)) ?? responses.get('default');
  const [mediaType, content] = Object.entries(described?.content ?? {})[0] ?? [];
  if (!mediaType || !content) {
    expect(response.text).toBeFalsy();
    return;
  }
  expect(response.get('Content-Type')).toBe(`${mediaType}; charset=utf-8`);
  const path = content.schema.$ref?.replace('#', 'contract#') ?? '';
  const isValid = ajv.validate({ $ref: path }, JSON.parse(response.text));
  expect(isValid, ajv.errorsText()).toBe(true);
  // ajv allows members that a schema does not list; responses must not have any.
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
    for (const object of [inner].flat()) expectExactMembers(object, reference);
  }
}

/** Returns the page of a 200. */
export function pageOf(response: Response): Responses[200] {
  return JSON.parse(response.text);
}

/** The body of a response with an error status. */
export type ErrorBody = Responses[Exclude<keyof Responses, 200 | 304>];

/** Returns the problem of a response with an error status. */
export function problemOf(response: Response): ErrorBody {
  return JSON.parse(response.text);
}
