/**
 * Follows each client's README word for word, with the packages that `make clients` built, against a service that
 * sometimes responds with 503 and 429. All tests run at once, because some wait for a minute.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify, stripVTControlCharacters } from 'node:util';
import { describe, expect, it } from 'vitest';
import { programs, sample } from './live/samples.js';

const execute = promisify(execFile);

/** Without the user's .bashrc, which bash reads if its standard input is a socket, as a pipe of Node is. */
const BASH = ['--norc', '-ec'];

const { SERVICE_URL = '', FAILING_URL = '', CACHE = '', CLIENTS = '' } = process.env;

/** Returns the output that every sample must print: the approved numbers with a carrier status of AT&T. */
async function expected(): Promise<string> {
  const query = 'size=100&carrier=AT%26T&status=approved';
  const response = await fetch(`${SERVICE_URL}/v1/brandedPhoneNumbers?${query}`);
  const { items } = (await response.json()) as { items: { phoneNumber: string }[] };
  expect(items).toHaveLength(56);
  return items.map(({ phoneNumber }) => `${phoneNumber} approved\n`).join('');
}

/** For each client: the language of its samples, the file that one is saved as, and the command that runs it. */
const runs: Record<string, { language: string; file(name: string): string; command(name: string): string }> = {
  typescript: { language: 'js', file: (name) => `${name}.mjs`, command: (name) => `node ${name}.mjs` },
  python: { language: 'python', file: (name) => `${name}.py`, command: (name) => `bin/python ${name}.py` },
  java: { language: 'java', file: (name) => `${name}.java`, command: (name) => `java -cp '*' ${name}.java` },
  go: { language: 'go', file: (name) => `${name}/main.go`, command: (name) => `go run ./${name}` },
};

/** Saves a program where the client is installed, with the address of the failing proxy. Returns the command that runs it. */
async function saved(client: string, name: string, url: string, text?: string) {
  const run = runs[client];
  if (!run) throw new Error(`unknown client: ${client}`);
  const folder = join(CACHE, 'installed', client);
  const path = join(folder, run.file(name));
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, sample(client, run.language, url, text));
  return { folder, command: run.command(name) };
}

const now = () => performance.timeOrigin + performance.now();

/** Returns when each request to this base URL of the failing proxy arrived, in milliseconds. */
async function arrivals(url: string): Promise<number[]> {
  const requests = (await (await fetch(`${url}/requests`)).json()) as { at: number }[];
  return requests.map(({ at }) => at);
}

/**
 * Runs the first program of a README against the failing proxy with these steps (live/failing.ts), until it fails with a
 * message. Returns the times between its requests, and from the last request to its end, in milliseconds.
 */
async function failSample(client: string, name: string, steps: string, message: RegExp): Promise<number[]> {
  const url = `${FAILING_URL}/${name}-${client}/${steps}`;
  const { folder, command } = await saved(client, name, url);
  // Ends the program before the test times out, so that no process is left.
  const program = execute('bash', [...BASH, `exec timeout 280 ${command}`], { cwd: folder });
  // Not `rejects`: Vitest would make the test that began last wait for it, too.
  expect(await program.then(() => 'it did not fail', String)).toMatch(message);
  const times = [...(await arrivals(url)), now()];
  return times.slice(1).map((time, i) => time - (times[i] ?? 0));
}

/** Follows the README of a client in an empty folder: installs it from the service, and returns what its program prints. */
async function followReadme(client: string, url: string, folder: string): Promise<string> {
  // The service behind a path prefix.
  const service = `${FAILING_URL}/install-${client}/ok`;
  const [{ file, command } = { file: '', command: '' }] = programs(client);
  await mkdir(dirname(join(folder, file)), { recursive: true });
  await writeFile(join(folder, file), sample(client, runs[client]?.language ?? '', url));
  if (client === 'java') {
    await writeFile(join(folder, 'pom.xml'), sample(client, 'xml', service));
    // The plugins that Maven downloads are kept, and the user's own repository stays as it is; the client is downloaded.
    await rm(join(CACHE, 'maven', 'example'), { recursive: true, force: true });
    await mkdir(join(CACHE, 'maven'), { recursive: true });
    await symlink(join(CACHE, 'maven'), join(folder, 'maven'));
  }
  // Maven installs it when it compiles the program.
  const install = client === 'java' ? '' : sample(client, 'sh', service);
  const { stdout } = await execute('bash', [...BASH, `{ :\n${install}} >&2\n${command}`], {
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

describe.concurrent('The README leads from an empty folder to every number that matches', () => {
  it.for(CLIENTS.split(' '))('in the %s client', { timeout: 600_000 }, async (client, { onTestFinished }) => {
    const folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-readme-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const url = `${FAILING_URL}/readme-${client}/size=20,503-1,ok,429-1,503-1,ok`;
    expect(await followReadme(client, url, folder)).toBe(await expected());
  });
});

describe.concurrent('The first program of the README', () => {
  it.each(CLIENTS.split(' '))(
    'waits a minute if Retry-After is an hour, and 30 seconds for a response, in the %s client',
    async (client) => {
      const message = /[Tt]ime(d )?out|deadline exceeded|within 30 seconds/;
      const [wait = 0, limit = 0, ...more] = await failSample(client, 'Slow', '503-3600,silent', message);
      expect(wait).toBeGreaterThan(59_500);
      expect(limit).toBeGreaterThan(29_500);
      expect(more).toEqual([]);
    },
    300_000,
  );

  it.each(CLIENTS.split(' '))(
    'gives up after a minute of 429s, in the %s client',
    async (client) => {
      const [first = 0, second = 0, end, ...more] = await failSample(
        client,
        'Limited',
        '429-40*',
        /429 Unavailable: Try/,
      );
      expect(first).toBeGreaterThan(39_500);
      expect(first + second).toBeGreaterThan(59_500);
      expect(end).toBeDefined();
      expect(more).toEqual([]);
    },
    300_000,
  );
});

describe.concurrent('The program of the README that resumes a walk', () => {
  it.runIf(CLIENTS.includes('java'))(
    'writes names in UTF-8, in the java client',
    async () => {
      const { folder, command } = await saved('java', 'Names', SERVICE_URL, 'progress');
      const path = join(folder, 'names', 'Names.java');
      await mkdir(dirname(path), { recursive: true });
      const program = await readFile(join(folder, 'Names.java'), 'utf8');
      await writeFile(path, program.replace('number.getStatus()', 'number.getBrandingNameShort()'));
      await execute('bash', [...BASH, command.replace("'*'", "'../*'")], { cwd: dirname(path) });
      expect(await readFile(join(dirname(path), 'numbers.txt'), 'utf8')).toContain('+14155550003 Café & Co\n');
    },
    300_000,
  );

  it.each(CLIENTS.split(' '))(
    'writes each number once, also if it is killed, in the %s client',
    async (client) => {
      const url = `${FAILING_URL}/sync-${client}/size=20,ok,ok,silent`;
      const { folder, command } = await saved(client, 'Sync', url, 'progress');
      const program = spawn('bash', [...BASH, `exec ${command}`], { cwd: folder, stdio: 'inherit', detached: true });
      const ended = once(program, 'exit');
      while ((await arrivals(url)).length < 3) {
        expect(program.exitCode).toBeNull();
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      // The whole process group, because some commands start another process.
      process.kill(-(program.pid ?? 0), 'SIGKILL');
      await ended;
      // As if it had been killed while it wrote the third page.
      await appendFile(join(folder, 'numbers.txt'), '+14155550042 appro');
      await execute('bash', [...BASH, command], { cwd: folder });
      expect(await readFile(join(folder, 'numbers.txt'), 'utf8')).toBe(await expected());
      expect(await arrivals(url)).toHaveLength(4);
      await expect(readFile(join(folder, 'progress'))).rejects.toThrow('ENOENT');
    },
    300_000,
  );
});
