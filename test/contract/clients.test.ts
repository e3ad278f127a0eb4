/** Files that repeat parts of the contract. */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { contract, parameters, resolve, type Schema } from '../../src/contract.js';

const { version } = contract.info;
const read = (path: string) => readFileSync(path, 'utf8');
const configs = readdirSync('clients/generation').filter((name) => name.endsWith('.yaml') && name !== 'reference.yaml');

describe("the contract's version is also that", () => {
  it.each(['package.json', 'package-lock.json', 'clients/typescript/package.json'])('of %s', (file) => {
    expect(JSON.parse(read(file)).version).toBe(version);
  });

  it.each<[string, RegExp]>([
    ...['typescript', 'python', 'java', 'go'].map((client): [string, RegExp] => [
      `clients/${client}/README.md`,
      /(?:-|@v|<version>)(\d+\.\d+\.\d+)/g,
    ]),
    ['deploy/kubernetes/branded-phone-numbers.yaml', /branded-phone-numbers:(\d+\.\d+\.\d+)/g],
    ['Dockerfile', /image\.version="(.*?)"/g],
  ])('of every package and image in %s', (file, pattern) => {
    const versions = [...read(file).matchAll(pattern)].map(([, found]) => found);
    expect(new Set(versions)).toEqual(new Set([version]));
  });

  it('of an entry in docs/api-changelog.md', () => {
    expect(read('docs/api-changelog.md')).toContain(`\n## ${version}\n`);
  });
});

describe('the clients', () => {
  it('are generated from clients/contract.ts, which has all paths, schemas and parameters of the contract', () => {
    const targets = configs.map((config) => `.cache/clients/${config.replace('.yaml', '.made')}`);
    const commands = execFileSync('make', ['-nB', '-f', 'Makefile', ...targets], { encoding: 'utf8' });
    for (const config of configs) {
      const command = new RegExp(`^.* generate .*-c clients/generation/${config}.*$`, 'm').exec(commands)?.[0];
      expect(command).toContain(' -i .cache/clients/openapi.json ');
    }
    expect(commands).toContain('tsx clients/contract.ts >.cache/clients/openapi.json');
    const made = JSON.parse(execFileSync('node', ['--import', 'tsx', 'clients/contract.ts'], { encoding: 'utf8' }));
    expect(Object.keys(made.paths)).toEqual(Object.keys(contract.paths));
    expect(made.components.schemas).toMatchObject(contract.components.schemas);
    expect(Object.keys(made.components.parameters)).toEqual(Object.keys(contract.components.parameters));
  });

  it('show no description that is about URLs, in which they encode values themselves', () => {
    const { parameters, schemas } = contract.components;
    const descriptions = JSON.stringify([parameters, schemas]).match(/"description":"(\\.|[^"\\])*"/g) ?? [];
    expect(descriptions.length).toBeGreaterThan(40);
    expect(descriptions.filter((text) => /%[0-9A-F]{2}|\bURLs?\b/.test(text))).toEqual([]);
  });

  it('have a description for each time', () => {
    const members = Object.values(contract.components.schemas).flatMap(({ properties }) =>
      Object.values(properties ?? {}),
    );
    const times = members.map((member) => resolve<Schema>(member)).filter(({ format }) => format === 'date-time');
    expect(new Set(times.map(({ description }) => description)).size).toBe(3);
  });

  it('have the same sample in README.md as in the README of TypeScript, which is run by its tests', () => {
    const blocks = read('clients/typescript/README.md').match(/^```\w+\n.*?^```$/gms) ?? [];
    const [install = '', program = ''] = blocks;
    for (const block of [install, program]) expect(read('README.md')).toContain(block);
  });

  it('say in each README, in the same words, until when they retry', () => {
    const rule =
      /Every call, and a walk for each page, retries after .* until 60 seconds, or the time that you set, would be exceeded/;
    const rules = ['.', 'typescript', 'python', 'java', 'go'].map((client) =>
      rule.exec(read(`clients/${client}/README.md`).replace(/\s+/g, ' '))?.at(0),
    );
    expect(rules).toEqual(Array(5).fill(expect.stringContaining('429, 502, 503 or 504')));
    expect(new Set(rules).size).toBe(1);
  });

  it('are tested with every filter of the contract', () => {
    const shapes: { arguments: object }[] = JSON.parse(read('clients/live/shapes.json'));
    const filters = [...parameters.keys()].filter((name) => name !== 'nextCursor' && name !== 'size');
    expect(new Set(shapes.flatMap((shape) => Object.keys(shape.arguments)))).toEqual(new Set(filters));
  });
});

it('the OpenAPI document of the public reference has the same parameters', () => {
  const reference = parse(read('clients/reference/openapi.yaml'));
  const names = reference.paths['/v1/brandedPhoneNumbers'].get.parameters.map(({ name }: { name: string }) => name);
  expect(new Set(names)).toEqual(new Set(parameters.keys()));
});
