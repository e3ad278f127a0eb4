/** The comparison with the last released contract: which changes are breaking, and which are not. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { breakingChanges, releasedContract } from '../../scripts/breakingChanges.js';

// biome-ignore lint/suspicious/noExplicitAny: tests edit any part of the parsed document.
type Document = any;

const contract = parse(readFileSync('openapi/openapi.yaml', 'utf8'));
const { stdout: isShallow } = spawnSync('git', ['rev-parse', '--is-shallow-repository'], { encoding: 'utf8' });

// Without the history, there is nothing to compare with.
it.skipIf(isShallow?.trim() !== 'false')('the contract breaks no client of the last release', () => {
  expect(breakingChanges(releasedContract().document, contract)).toEqual([]);
});

/** Returns the breaking changes after `edit` changed the contract. */
function changesAfter(edit: (document: Document) => void): string[] {
  const proposed = structuredClone(contract);
  edit(proposed);
  return breakingChanges(contract, proposed);
}

const list = (document: Document) => document.paths['/v1/brandedPhoneNumbers'].get;
const properties = (document: Document, name: string) => schema(document, name).properties;
const parameter = (document: Document, name: string) => document.components.parameters[`${name}Parameter`];
const region = { name: 'region', in: 'query', schema: { type: 'string' } };
const schema = (document: Document, name: string) => document.components.schemas[name];

describe('breakingChanges reports that', () => {
  it.each<[string, (document: Document) => void, string]>([
    ['an operation was removed', (d) => delete d.paths['/v1/brandedPhoneNumbers'].get, 'the operation is gone'],
    ['a parameter was removed', (d) => list(d).parameters.pop(), 'parameter If-None-Match: the parameter is gone'],
    [
      'a required parameter was added',
      (d) => list(d).parameters.push({ ...region, required: true }),
      'parameter region: it is new and required',
    ],
    ['the style of an array changed', (d) => (parameter(d, 'Carrier').explode = false), 'carrier: its explode changed'],
    ['a maximum decreased', (d) => (parameter(d, 'Size').schema.maximum = 50), 'its maximum was 100, now 50'],
    ['a default changed', (d) => (parameter(d, 'Size').schema.default = 50), 'its default was 25, now 50'],
    ['a value was removed', (d) => schema(d, 'Feature').enum.pop(), 'no longer accepts the value spamRemediation'],
    ['an exact pattern changed', (d) => (schema(d, 'Name')['x-exact-pattern'] = 'a'), 'carrier item: its pattern was '],
    ['a response was removed', (d) => delete list(d).responses.default, 'the response default is gone'],
    [
      'a response was replaced by `default`, which lacks one of its headers',
      (d) => delete list(d).responses['429'],
      '→ 429: the header Retry-After is gone',
    ],
    [
      'a header was removed',
      (d) => delete d.components.responses.RateLimitExceeded.headers['Retry-After'],
      '→ 429: the header Retry-After is gone',
    ],
    ['a member became optional', (d) => schema(d, 'BrandedPhoneNumberPage').required.pop(), 'it may now be absent'],
    [
      'a member became nullable',
      (d) => (properties(d, 'BusinessProfile').businessName.type = ['string', 'null']),
      'businessName: its type was string, now string or null',
    ],
    [
      'the maximum length of a member increased',
      (d) => (properties(d, 'BrandedPhoneNumber').brandingNameShort.maxLength = 20),
      'brandingNameShort: its maxLength was 15, now 20',
    ],
    ['a key became required', (d) => d.security.shift(), 'no longer accepts authentication with nothing'],
    ['a problem type was removed', (d) => delete d['x-problems']['invalid-cursor'], 'invalid-cursor: the problem'],
    [
      'a keyword was added that the check does not know',
      (d) => (schema(d, 'BusinessProfile').not = { required: ['id'] }),
      'its not changed, which this check does not compare yet',
    ],
  ])('%s', (_, edit, sentence) => {
    expect(changesAfter(edit).join('\n')).toContain(sentence);
  });
});

describe('for the list of values of a response member, breakingChanges', () => {
  const withValues = (values?: string[]) => {
    const document = structuredClone(contract);
    schema(document, 'BusinessProfile').properties.status.enum = values;
    return document;
  };

  it.each<[string, string[] | undefined, string[]]>([
    ['reports an added value', ['pending', 'approved'], ['status: its value may now be pending']],
    ['reports that the list was removed', undefined, ['status: it may have any value now']],
    ['accepts that a value was removed', [], []],
  ])('%s', (_, values, sentences) => {
    const found = breakingChanges(withValues(['approved']), withValues(values));
    expect(found).toEqual(sentences.map((sentence) => expect.stringContaining(sentence)));
  });
});

describe('breakingChanges accepts', () => {
  it.each<[string, (document: Document) => void]>([
    ['an optional parameter', (d) => list(d).parameters.push(region)],
    ['a response that was replaced by `default`', (d) => delete list(d).responses['500']],
    ['a response member', (d) => (properties(d, 'BrandedPhoneNumber').region = { type: 'string' })],
    ['another value of a request', (d) => schema(d, 'Feature').enum.push('voicemailGreeting')],
    ['an operation', (d) => (d.paths['/v2/brandedPhoneNumbers'] = d.paths['/v1/brandedPhoneNumbers'])],
    ['a larger maximum of a parameter', (d) => (parameter(d, 'Size').schema.maximum = 200)],
    ['another description', (d) => (parameter(d, 'Size').description = 'The number of items per page.')],
    ['another published pattern if the exact one is the same', (d) => (schema(d, 'Name').pattern = '^.+$')],
    ['a problem type', (d) => (d['x-problems'].gone = { title: 'Gone', status: 410 })],
  ])('%s', (_, edit) => {
    expect(changesAfter(edit)).toEqual([]);
  });
});
