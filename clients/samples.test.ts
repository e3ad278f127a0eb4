/**
 * Follows each client's README word for word, with the packages that `make clients` built, against a service that
 * sometimes responds with 503 and 429.
 */
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify, stripVTControlCharacters } from 'node:util';
import { describe, expect, it, onTestFinished } from 'vitest';
import { block, program, sample } from './live/samples.js';

const execute = promisify(execFile);

/** Runs a program. Kills it before the test times out, so that no process is left. */
const run = (program: string, options: string[], { cwd }: { cwd: string }) =>
  execute(program, options, { cwd, timeout: 115_000 });

const { SERVICE_URL = '', FAILING_URL = '', CACHE = '', CLIENTS = '' } = process.env;

/** Returns the output that every sample must print: the approved numbers with a carrier status of AT&T. */
async function expected(): Promise<string> {
  const query = 'size=100&carrier=AT%26T&status=approved';
  const response = await fetch(`${SERVICE_URL}/v1/brandedPhoneNumbers?${query}`);
  const { items } = (await response.json()) as { items: { phoneNumber: string }[] };
  expect(items).toHaveLength(56);
  return items.map(({ phoneNumber }) => `${phoneNumber} approved\n`).join('');
}

/**
 * For each client: the language of its sample, the file that it is saved as, and the command that runs it in a folder.
 */
const runs: Record<string, { language: string; file: string; run(folder: string): Promise<{ stdout: string }> }> = {
  typescript: {
    language: 'js',
    file: 'sample.mjs',
    run: (folder) => run('node', ['sample.mjs'], { cwd: folder }),
  },
  python: {
    language: 'python',
    file: 'sample.py',
    run: (folder) => run(join(folder, 'bin', 'python'), ['sample.py'], { cwd: folder }),
  },
  java: {
    language: 'java',
    file: 'Sample.java',
    run: (folder) => run('java', ['-cp', join(folder, '*'), 'Sample.java'], { cwd: folder }),
  },
  go: {
    language: 'go',
    file: 'sample/main.go',
    run: (folder) => run('go', ['run', './sample'], { cwd: folder }),
  },
};

/** Runs the sample of a client against the failing proxy with these steps (live/failing.ts). */
async function runSample(client: string, steps: string): Promise<{ stdout: string }> {
  const runner = runs[client];
  if (!runner) throw new Error(`unknown client: ${client}`);
  const folder = join(CACHE, 'installed', client);
  await mkdir(join(folder, 'sample'), { recursive: true });
  await writeFile(
    join(folder, runner.file),
    sample(client, runner.language, `${FAILING_URL}/sample-${client}/${steps}`),
  );
  return runner.run(folder);
}

/** Follows the README of a client in an empty folder beside the packages; returns what its program prints. */
async function followReadme(client: string, url: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-readme-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await cp(join(CACHE, 'packages'), folder, { recursive: true });
  const { file, command } = program(client);
  await mkdir(dirname(join(folder, file)), { recursive: true });
  await writeFile(join(folder, file), sample(client, runs[client]?.language ?? '', url));
  if (client === 'java') {
    await writeFile(join(folder, 'pom.xml'), block(client, 'xml'));
    // The plugins that Maven downloads are kept, and the user's own repository stays as it is.
    await mkdir(join(CACHE, 'maven'), { recursive: true });
    await symlink(join(CACHE, 'maven'), join(folder, 'maven'));
  }
  const install = block(client, 'sh').replaceAll('/path/to/packages', folder);
  const { stdout } = await execute('bash', ['-ec', `{ ${install} } >&2\n${command}`], {
    cwd: folder,
    env: {
      ...process.env,
      MAVEN_OPTS: '-Dmaven.repo.local=maven',
      GOMODCACHE: join(folder, 'modules'),
      GOFLAGS: '-modcacherw',
    },
    maxBuffer: 1 << 26,
  });
  // Maven resets the color of a terminal.
  return stripVTControlCharacters(stdout);
}

describe('The README leads from an empty folder to every number that matches', () => {
  it.each(CLIENTS.split(' '))(
    'in the %s client',
    async (client) => {
      const url = `${FAILING_URL}/readme-${client}/size=20,503-1,ok,429-1,503-1,ok`;
      expect(await followReadme(client, url)).toBe(await expected());
    },
    600_000,
  );
});

describe.concurrent('The sample of the README waits a minute if Retry-After is an hour, and 30 seconds for a response', () => {
  it.each(CLIENTS.split(' '))('in the %s client', async (client) => {
    const started = performance.now();
    const timeoutMessage = /[Tt]ime(d )?out|deadline exceeded|within 30 seconds/;
    await expect(runSample(client, '503-3600,silent')).rejects.toThrow(timeoutMessage);
    const elapsed = performance.now() - started;
    expect(elapsed).toBeGreaterThan(89_500);
    expect(elapsed).toBeLessThan(115_000);
  });
});
