/** The comparison with the last released contract: changes that it must report, and changes that it must accept. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { breakingChanges } from '../../scripts/breakingChanges.js';

// biome-ignore lint/suspicious/noExplicitAny: each test edits a parsed document at any place.
type Document = any;

const released = parse(readFileSync('openapi/released/1.1.0.yaml', 'utf8'));

/** Returns the breaking changes that `edit` makes to the released document. */
function after(edit: (document: Document) => void): string[] {
  const proposed = structuredClone(released);
  edit(proposed);
  return breakingChanges(released, proposed);
}

const list = (document: Document) => document.paths['/v1/brandedPhoneNumbers'].get;
const parameter = (document: Document, name: string) => document.components.parameters[`${name}Parameter`];
const schema = (document: Document, name: string) => document.components.schemas[name];

describe('breakingChanges reports that', () => {
  it.each<[string, (document: Document) => void, string]>([
    ['an operation is removed', (d) => delete d.paths['/v1/brandedPhoneNumbers'].get, 'the operation is gone'],
    ['a parameter is removed', (d) => list(d).parameters.pop(), 'parameter detailedStatus: the parameter is gone'],
    [
      'a new parameter is required',
      (d) => list(d).parameters.push({ name: 'region', in: 'query', required: true, schema: { type: 'string' } }),
      'parameter region: it is new and required',
    ],
    ['an array has another style', (d) => (parameter(d, 'Carrier').explode = false), 'carrier: its explode changed'],
    ['a largest value shrinks', (d) => (parameter(d, 'Size').schema.maximum = 50), 'its maximum was 100, now 50'],
    ['a default changes', (d) => (parameter(d, 'Size').schema.default = 50), 'its default was 25, now 50'],
    [
      'a value is no longer accepted',
      (d) => schema(d, 'Feature').enum.pop(),
      'parameter feature item: it no longer accepts the value spamRemediation',
    ],
    [
      'an exact pattern changes',
      (d) => (schema(d, 'Name')['x-exact-pattern'] = '^[a-z]+$'),
      'parameter carrier item: its pattern was ',
    ],
    ['a response is removed', (d) => delete list(d).responses['429'], 'the response 429 is gone'],
    [
      'a header is removed',
      (d) => delete d.components.responses.RateLimitExceeded.headers['Retry-After'],
      '→ 429: the header Retry-After is gone',
    ],
    [
      'a member may be absent',
      (d) => schema(d, 'BrandedPhoneNumberPage').required.pop(),
      'nextCursor: it may now be absent',
    ],
    [
      'a member becomes nullable',
      (d) => (schema(d, 'BusinessProfile').properties.businessName.type = ['string', 'null']),
      'businessName: its type was string, now string or null',
    ],
    [
      'a member may become longer',
      (d) => (schema(d, 'BrandedPhoneNumber').properties.brandingNameShort.maxLength = 20),
      'brandingNameShort: its maxLength was 15, now 20',
    ],
    ['a key becomes required', (d) => d.security.shift(), 'no longer accepts authentication with nothing'],
    [
      'a problem type is removed',
      (d) => delete d['x-problems']['invalid-cursor'],
      'problem invalid-cursor: the problem type',
    ],
    [
      'a keyword that the check does not know is added',
      (d) => (schema(d, 'BusinessProfile').not = { required: ['id'] }),
      'its not changed, which this check does not understand',
    ],
  ])('%s', (_, edit, sentence) => {
    expect(after(edit).join('\n')).toContain(sentence);
  });
});

describe('a member of a response that lists its values', () => {
  const withValues = (values?: string[]) => {
    const document = structuredClone(released);
    schema(document, 'BusinessProfile').properties.status.enum = values;
    return document;
  };

  it.each<[string, string[] | undefined, string[]]>([
    ['can have no new ones', ['pending', 'approved'], ['status: its value may now be pending']],
    ['must go on to list them', undefined, ['status: it may have any value now']],
    ['may lose one', [], []],
  ])('%s', (_, values, sentences) => {
    const found = breakingChanges(withValues(['approved']), withValues(values));
    expect(found).toEqual(sentences.map((sentence) => expect.stringContaining(sentence)));
  });
});

describe('the contract may grow by', () => {
  it.each<[string, (document: Document) => void]>([
    [
      'an optional parameter',
      (d) => list(d).parameters.push({ name: 'region', in: 'query', schema: { type: 'string' } }),
    ],
    ['a member of a response', (d) => (schema(d, 'BrandedPhoneNumber').properties.region = { type: 'string' })],
    ['a value of a list', (d) => schema(d, 'Feature').enum.push('voicemailGreeting')],
    ['an operation', (d) => (d.paths['/v2/brandedPhoneNumbers'] = d.paths['/v1/brandedPhoneNumbers'])],
    ['a wider bound of a parameter', (d) => (parameter(d, 'Size').schema.maximum = 200)],
    ['a better description', (d) => (parameter(d, 'Size').description = 'How many numbers a page may hold.')],
    ['another published pattern for the same exact one', (d) => (schema(d, 'Name').pattern = '^.+$')],
    ['a problem type', (d) => (d['x-problems'].gone = { title: 'Gone', status: 410 })],
  ])('%s', (_, edit) => {
    expect(after(edit)).toEqual([]);
  });
});
