/** Every example in the contract fits its schema: the menus of the docs page and the partners' samples show them. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { describe, expect, it } from 'vitest';
import { contract, resolve } from '../../src/contract.js';

interface Found {
  pointer: string;
  schema: string;
  value: unknown;
}

const ajv = new Ajv2020({ strict: false, allErrors: true });
formats.default(ajv);
ajv.addSchema(contract, 'contract');

const pointerPart = (key: string) => key.replaceAll('~', '~0').replaceAll('/', '~1');

/** Every example below `node` beside the pointer to its schema: a schema's own, a parameter's, a header's, a body's. */
function examples(node: unknown, pointer = '#'): Found[] {
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
  return [...own, ...below.flatMap(([key, child]) => examples(child, `${pointer}/${pointerPart(key)}`))];
}

const found = examples(contract);

describe('Every example is valid', () => {
  it.each(found)('at $pointer', ({ schema, value }) => {
    const validate = ajv.getSchema(`contract${schema.replaceAll(/[^#/]+/g, encodeURIComponent)}`);
    expect(validate, `no schema at ${schema}`).toBeDefined();
    validate?.(value);
    expect(validate?.errors ?? []).toEqual([]);
  });
});

it('The example of a 429 has no requests left, and that of a page has some', () => {
  const example = (response: string) => {
    const { headers } = resolve<{ headers: Record<string, { $ref: string }> }>({
      $ref: `#/components/responses/${response}`,
    });
    return resolve<{ example?: string }>(headers.RateLimit ?? {}).example;
  };
  expect(example('RateLimitExceeded')).toMatch(/^"default";r=0;t=[1-9]$/);
  expect(example('Listed')).toMatch(/^"default";r=[1-9];t=1$/);
});

describe('There is an example of', () => {
  const pointers = found.map(({ pointer }) => pointer);
  const withExample = (prefix: string) => pointers.some((pointer) => pointer.startsWith(prefix));

  it.each(Object.keys(contract.components.parameters).filter((name) => name !== 'NextCursorParameter'))(
    'parameter %s',
    (name) => {
      expect(withExample(`#/components/parameters/${name}/examples/`)).toBe(true);
    },
  );

  it.each(Object.keys(contract.components.headers as object))('header %s', (name) => {
    expect(withExample(`#/components/headers/${name}/example`)).toBe(true);
  });

  it.each(Object.entries(contract.components.responses as object).filter(([, response]) => response.content))(
    'answer %s',
    (name) => {
      expect(withExample(`#/components/responses/${name}/content`)).toBe(true);
    },
  );

  it.each(Object.entries(contract['x-problems']))(
    'problem %s, with its title and status',
    (name, { title, status }) => {
      const bodies = found.map(({ value }) => value as Record<string, unknown>);
      expect(bodies).toContainEqual(
        expect.objectContaining({ type: `/problems/${name}`, title, status, message: title }),
      );
    },
  );
});
