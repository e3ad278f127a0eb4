/** What `npm pack` makes, installed into an empty folder and run there. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { expectDemoPage, type StartedService, startIn } from './service.js';

const run = promisify(execFile);

let folder: string;
let files: string[];
let service: StartedService;
let command: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-package-'));
  const pack = await run('npm', ['pack', '--ignore-scripts', '--json', '--pack-destination', folder], {
    cwd: packageFolder,
  });
  const packed = JSON.parse(pack.stdout);
  // npm 12 names each package; earlier ones list them.
  const [{ filename, files: list }] = Array.isArray(packed) ? packed : Object.values(packed);
  files = list.map(({ path }: { path: string }) => path);
  await run('npm', ['install', '--prefix', folder, '--ignore-scripts', '--prefer-offline', join(folder, filename)]);
  command = join(folder, 'node_modules', '.bin', 'branded-phone-numbers');
  service = await startIn(folder, [command, 'serve', '--demo']);
});

afterAll(async () => {
  await service?.stop();
  await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
});

it('holds the files that it needs to run, and no others', () => {
  const isNeeded = /^(package\.json|README\.md|LICENSE|(browser|demo|drizzle)\/|dist\/.*\.js$|openapi\/openapi\.yaml$)/;
  expect(files.filter((file) => !isNeeded.test(file))).toEqual([]);
});

it('serves the demo', () => expectDemoPage(service.url));

it.each(['/docs', '/openapi.yaml', '/readyz'])('serves %s', async (path) => {
  const response = await fetch(service.url + path);
  expect([path, response.status]).toEqual([path, 200]);
});

it('serves every file that the documentation page loads', async () => {
  const page = await (await fetch(`${service.url}/docs`)).text();
  const paths = [...page.matchAll(/(?:src|href)="([^"#:]+)"/g)].map(([, path = '']) => path);
  expect(paths.length).toBeGreaterThan(2);
  for (const path of paths) {
    expect([path, (await fetch(new URL(path, `${service.url}/docs`))).status]).toEqual([path, 200]);
  }
});

it('makes a key while it serves', async () => {
  const { stdout } = await run(command, ['keys', 'create', '--name', 'partner'], { cwd: folder });
  expect(stdout.trim()).toMatch(/^\S{20,}$/);
});
