/** Pages that differ from the contract in one member. Every client must reject them. */
import { contract, resolve, type Schema } from '../../src/contract.js';

/** The steps of the failing proxy (failing.ts) that send such a page, one for each fault that a member can have. */
export const malformedSteps = stepsFor(contract.components.schemas.BrandedPhoneNumberPage ?? {}, '');

function stepsFor(node: Schema, place: string): string[] {
  const { type = [], format, required = [], properties = {}, items } = resolve(node);
  const member = (name: string) => (place ? `${place}.${name}` : name);
  return [
    `other-${place}`,
    ...([type].flat().includes('null') ? [] : [`null-${place}`]),
    ...(format ? [`form-${place}`] : []),
    ...required.map((name) => `lacks-${member(name)}`),
    ...Object.entries(properties).flatMap(([name, schema]) => stepsFor(schema, member(name))),
    ...(items ? stepsFor(items, member('0')) : []),
  ];
}

/** Returns `page` with one change at `place`, such as `items.0.id`; '' is the page itself. */
export function malformed(page: unknown, change: string, place: string): unknown {
  if (place === '') return change === 'null' ? null : [page];
  const [name = '', ...rest] = place.split('.');
  const changed = structuredClone(page) as Record<string, unknown>;
  if (rest.length > 0) changed[name] = malformed(changed[name], change, rest.join('.'));
  else if (change === 'lacks') delete changed[name];
  else if (change === 'null') changed[name] = null;
  else if (change === 'form') changed[name] = 'tomorrow';
  else changed[name] = typeof changed[name] === 'object' ? 7 : [changed[name]];
  return changed;
}
