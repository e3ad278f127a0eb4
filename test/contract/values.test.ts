/** Lists of values (closed in requests, open in responses), and patterns and names that clients depend on. */
import { describe, expect, it } from 'vitest';
import { contract, parameters, resolve, type Schema } from '../../src/contract.js';
import { STATUSES } from '../../src/status.js';

const { schemas } = contract.components;

/** Returns every schema that `schema` refers to, including itself. */
function reachable(schema: Schema): Schema[] {
  const at = resolve(schema);
  return [at, ...[at.items ?? [], Object.values(at.properties ?? {})].flat().flatMap(reachable)];
}

describe('a response', () => {
  it.each(['BrandedPhoneNumberPage', 'Problem'])(
    'has no closed list of values, so that values can be added: %s',
    (name) => {
      const found = reachable(schemas[name] as Schema);
      expect(found.length).toBeGreaterThan(5);
      expect(found.filter((schema) => schema.enum)).toEqual([]);
    },
  );

  it('lists the known values of feature, status and detailedStatus, and has one of them as the example', () => {
    const open = reachable(schemas.BrandedPhoneNumberPage as Schema).filter((schema) => schema['x-known-values']);
    const known = open.map((schema) => resolve<Schema>(schema['x-known-values'] ?? {}));
    expect(known.map((schema) => schema.enum)).toEqual([STATUSES, schemas.Feature?.enum, schemas.DetailedStatus?.enum]);
    for (const [i, { examples }] of open.entries()) expect(known[i]?.enum).toContain(examples?.[0]);
  });
});

it('the `status` filter lists the overall statuses, then the detailed ones', () => {
  expect(schemas.StatusFilter?.enum).toEqual([...STATUSES, ...(schemas.DetailedStatus?.enum ?? [])]);
});

describe('a pattern', () => {
  const texts = Object.values(schemas).flatMap(reachable);
  texts.push(...[...parameters.values()].flatMap(({ schema }) => reachable(schema)));
  const patterns = texts.filter(({ pattern }) => pattern !== undefined);

  it('means the same in every language: it is ASCII, and escapes only characters from U+0001 to U+007F', () => {
    expect(patterns.length).toBeGreaterThan(10);
    const portable = /^(?:[ -[\]-~]|\\[+.]|\\x(?!00)[0-7][0-9A-F])+$/;
    expect(patterns.filter(({ pattern }) => !portable.test(String(pattern)))).toEqual([]);
  });

  it('matches everything that its exact pattern matches', () => {
    const exact = patterns.filter((schema) => 'x-exact-pattern' in schema);
    expect(exact.length).toBeGreaterThan(10);
    const characters = Array.from({ length: 0x110000 }, (_, code) => String.fromCodePoint(code));
    for (const [exactPattern, pattern] of new Map(exact.map((schema) => [schema['x-exact-pattern'], schema.pattern]))) {
      const [full, published] = [new RegExp(String(exactPattern), 'u'), new RegExp(String(pattern), 'u')];
      expect(characters.filter((character) => full.test(character) && !published.test(character))).toEqual([]);
    }
  });
});

it('no two components have the same name, since some generators turn names into types', () => {
  const { parameters, responses } = contract.components as unknown as Record<string, object>;
  const names = [schemas, parameters, responses].flatMap((section) => Object.keys(section ?? {}));
  expect(names.filter((name, i) => names.indexOf(name) !== i)).toEqual([]);
});
