/** What a command loads: each package takes CPU time of every start, which a clock would measure with the machine. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { packageFolder } from '../../../src/packageFolder.js';
import { MAIN } from '../../support/serverProcess.js';
import { useTemporaryFolder } from '../../support/temporaryFolder.js';

const folder = useTemporaryFolder('branded-phone-numbers-loaded-');

/** Runs Node, and returns the modules of packages that it loaded, such as `postgres/src/index.js`. */
function modulesOf(...args: string[]): string[] {
  const coverage = mkdtempSync(join(folder.path, 'coverage-'));
  execFileSync(process.execPath, args, { env: { PATH: process.env.PATH, NODE_V8_COVERAGE: coverage } });
  const [report = ''] = readdirSync(coverage);
  const { result } = JSON.parse(readFileSync(join(coverage, report), 'utf8')) as { result: { url: string }[] };
  return result.flatMap(({ url }) => /\/node_modules\/(?!.*\/node_modules\/)(.*)/.exec(url)?.[1] ?? []);
}

const packagesOf = (modules: string[]) => [...new Set(modules.map((path) => /^(@[^/]+\/)?[^/]+/.exec(path)?.[0]))];
const drizzleModules = (modules: string[]) => modules.filter((path) => /^drizzle-orm\/.*\.js$/.test(path));

it('--version loads what reads command lines and settings, and the driver for its errors, but no Drizzle', () => {
  expect(packagesOf(modulesOf(MAIN, '--version')).toSorted()).toEqual([
    ...['commander', 'envalid', 'forwarded', 'ipaddr.js', 'js-yaml', 'pg-connection-string'],
    ...['postgres', 'proxy-addr', 'tslib'],
  ]);
});

it('export loads no ES modules of Drizzle', () => {
  const modules = modulesOf('--import', join(packageFolder, 'dist/src/operator/numbers/export.js'), '--eval', '');
  expect(packagesOf(modules)).toContain('drizzle-orm');
  expect(drizzleModules(modules)).toEqual([]);
});

it('serve loads neither ES modules of Drizzle nor, unless REDIS_URL is set, the client of Redis', () => {
  const modules = modulesOf('--import', join(packageFolder, 'dist/src/service/server.js'), '--eval', '');
  expect(packagesOf(modules)).toContain('express');
  expect(packagesOf(modules)).not.toContain('ioredis');
  expect(drizzleModules(modules)).toEqual([]);
});
