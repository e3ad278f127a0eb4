/** The files that repeat parts of the contract agree with it. */
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { contract, parameters } from '../../src/contract.js';

const { version } = contract.info;
const read = (path: string) => readFileSync(path, 'utf8');
const configs = readdirSync('clients/generation').filter((name) => name.endsWith('.yaml') && name !== 'reference.yaml');

describe("the contract's version is that", () => {
  it.each(['package.json', 'package-lock.json', 'clients/typescript/package.json'])('of %s', (file) => {
    expect(JSON.parse(read(file)).version).toBe(version);
  });

  it.each(['typescript', 'python', 'java', 'go'])('of every package in the README of %s', (client) => {
    const named = [...read(`clients/${client}/README.md`).matchAll(/(?:-|@v|<version>)(\d+\.\d+\.\d+)/g)];
    expect(named.length).toBeGreaterThan(0);
    expect(new Set(named.map(([, found]) => found))).toEqual(new Set([version]));
  });

  it('of the image in the Kubernetes manifest', () => {
    const manifest = read('deploy/kubernetes/branded-phone-numbers.yaml');
    const named = [...manifest.matchAll(/branded-phone-numbers:(\d+\.\d+\.\d+)/g)].map(([, found]) => found);
    expect(new Set(named)).toEqual(new Set([version]));
  });

  it('of an entry in the changelog', () => {
    expect(read('docs/api-changelog.md')).toContain(`\n## ${version}\n`);
  });
});

describe('the clients', () => {
  it.each(configs)('are generated from the contract: %s', (config) => {
    expect(parse(read(`clients/generation/${config}`)).inputSpec).toBe('openapi/openapi.yaml');
  });

  it.each([
    ['README.md', 'typescript', 2],
    ['clients/README.md', 'python', 2],
    ['clients/README.md', 'java', 3],
    ['clients/README.md', 'go', 2],
  ])('have the same samples in %s as in the README of %s, whose samples are run', (page, client, count) => {
    const blocks = read(`clients/${client}/README.md`).match(/^```\w+\n.*?^```$/gms) ?? [];
    expect(blocks).toHaveLength(count);
    for (const block of blocks) expect(read(page)).toContain(block);
  });

  it('are tested with every filter', () => {
    const shapes: { arguments: object }[] = JSON.parse(read('clients/live/shapes.json'));
    const filters = [...parameters.keys()].filter((name) => name !== 'nextCursor' && name !== 'size');
    expect(new Set(shapes.flatMap((shape) => Object.keys(shape.arguments)))).toEqual(new Set(filters));
  });
});

it('the description of the public reference has the same parameters', () => {
  const reference = parse(read('clients/reference/openapi.yaml'));
  const names = reference.paths['/v1/brandedPhoneNumbers'].get.parameters.map(({ name }: { name: string }) => name);
  expect(new Set(names)).toEqual(new Set(parameters.keys()));
});
