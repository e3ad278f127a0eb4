/** What `npm pack` makes, installed into an empty folder and run there. */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { expectDemoPage, type StartedService, startIn } from '../support/installedService.js';
import { installPackage } from './package.js';

const run = promisify(execFile);

let folder: string;
let files: string[];
let service: StartedService;
let command: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-package-'));
  ({ command, files } = await installPackage(packageFolder, folder, ['--ignore-scripts']));
  service = await startIn(folder, [command, 'serve', '--demo']);
});

afterAll(async () => {
  await service?.stop();
  await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
});

it('holds the files that it needs to run and what is to be read, and no others', () => {
  const isNeeded =
    /^(package\.json|LICENSE|(browser|demo|deploy|docs|drizzle)\/|.*\.(md|postman_collection\.json)$|dist\/.*\.js$|openapi\/openapi(-3\.0\.json|\.yaml)$)/;
  expect(files.filter((file) => !isNeeded.test(file))).toEqual([]);
});

it('has every file that its documentation and the help of serve refer to', async () => {
  const installed = join(folder, 'node_modules', 'branded-phone-numbers');
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
