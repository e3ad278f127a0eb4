/** Messages that say what is wrong with a line of an import, and what to change. */
import type { ErrorObject } from 'ajv/dist/2020.js';
import type { Schema } from '../contract.js';
import { printable, shorten } from '../messages/shorten.js';
import { nearest } from '../messages/suggestion.js';

/** Users fix the first few and try again. */
const MAX_REASONS = 5;

/** All findings in one sentence: one for each value, even if it fails several keywords. */
export function reasons(errors: readonly ErrorObject[]): string {
  const byValue = new Map<string, string>();
  for (const error of errors) {
    const member = error.params.additionalProperty ?? error.params.missingProperty ?? '';
    const key = `${error.instancePath} ${member}`;
    // A message about the format says more than one about the length.
    if (byValue.has(key) && error.keyword !== 'pattern' && error.keyword !== 'format') continue;
    if (error.data === '' && byValue.has(key)) continue;
    byValue.set(key, reason(error));
  }
  return enumerate([...byValue.values()]);
}

function reason({ instancePath, keyword, params, parentSchema, data }: ErrorObject): string {
  const schema = parentSchema as Schema;
  const path = pathOf(instancePath);
  const inside = path && `${path}.`;
  switch (keyword) {
    case 'additionalProperties': {
      const known = nearest(params.additionalProperty, Object.keys(schema.properties ?? {}));
      const unknown = `${inside}${printable(shorten(params.additionalProperty))} is not a member of a ${schema.title}`;
      return known ? `${unknown}; did you mean ${known}?` : unknown;
    }
    case 'required': {
      const isNullable = schema.properties?.[params.missingProperty]?.type?.includes('null');
      return `${inside}${params.missingProperty} is missing${isNullable ? ' (null says that it is not known)' : ''}`;
    }
    case 'type':
      return path ? `${path} must be ${kindOf(schema)}` : `must be a JSON object, a ${schema.title}`;
    case 'enum': {
      const meant = nearest(String(data), schema.enum ?? []);
      return `${path} must be ${kindOf(schema)}${meant ? `; did you mean ${meant}?` : ''}`;
    }
    case 'minLength':
      return schema.minLength === 1 ? `${path} must not be empty` : `${path} must be ${kindOf(schema)}`;
    case 'maxLength':
      return `${path} must have at most ${params.limit} characters`;
    case 'maxItems':
      return `${path} must have at most ${params.limit} entries`;
    default: // pattern, format
      return schema.minLength === 1
        ? `${path} must not contain control characters`
        : `${path} must be ${kindOf(schema)}`;
  }
}

/** Such as "a phone number in E.164, for example +14155550123". */
function kindOf({ type, title, format, minLength, examples, enum: values }: Schema): string {
  if (values) return values.length === 2 ? values.join(' or ') : `one of ${values.join(', ')}`;
  if (type === 'object') return `an object, a ${title}`;
  if (type === 'array') return 'an array';
  if (minLength === 1) return Array.isArray(type) ? 'text or null' : 'text';
  return `a ${title ?? format?.toString().toUpperCase()}, for example ${examples?.[0]}`;
}

/** `/carrierStatuses/0/carrier` as `carrierStatuses[0].carrier`. */
function pathOf(pointer: string): string {
  return pointer
    .slice(1)
    .replace(/\/(\d+)/g, '[$1]')
    .replaceAll('/', '.');
}

export function enumerate(faults: readonly string[]): string {
  const more = faults.length - MAX_REASONS;
  return faults.slice(0, MAX_REASONS).join('; ') + (more > 0 ? `; and ${more} more` : '');
}
