/** Lists of values: closed in requests, open in answers. */
import { describe, expect, it } from 'vitest';
import { contract, resolve, type Schema } from '../../src/contract.js';

const { schemas } = contract.components;

/** Every schema that `schema` leads to, itself included. */
function reachable(schema: Schema): Schema[] {
  const at = resolve(schema);
  return [at, ...[at.items ?? [], Object.values(at.properties ?? {})].flat().flatMap(reachable)];
}

describe('An answer', () => {
  it.each(['BrandedPhoneNumberPage', 'Problem'])('has no closed list of values, since more may come: %s', (name) => {
    const found = reachable(schemas[name] as Schema);
    expect(found.length).toBeGreaterThan(5);
    expect(found.filter((schema) => schema.enum)).toEqual([]);
  });

  it('lists the known values of what a request can filter by, and has one of them as its example', () => {
    const open = reachable(schemas.BrandedPhoneNumberPage as Schema).filter((schema) => schema['x-known-values']);
    const known = open.map((schema) => resolve<Schema>(schema['x-known-values'] ?? {}));
    expect(new Set(known)).toEqual(new Set([schemas.Feature, schemas.Status, schemas.DetailedStatus]));
    for (const [i, { examples }] of open.entries()) expect(known[i]?.enum).toContain(examples?.[0]);
  });
});

it('The `status` filter takes the overall statuses, then the detailed ones', () => {
  expect(schemas.StatusFilter?.enum).toEqual([
    ...(schemas.Status?.enum ?? []),
    ...(schemas.DetailedStatus?.enum ?? []),
  ]);
});

it('No two components share a name, since some generators make types of the names', () => {
  const { parameters, responses } = contract.components as unknown as Record<string, object>;
  const names = [schemas, parameters, responses].flatMap((section) => Object.keys(section ?? {}));
  expect(names.filter((name, i) => names.indexOf(name) !== i)).toEqual([]);
});
