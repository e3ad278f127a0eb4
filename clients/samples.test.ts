/**
 * Follows each client's README word for word, with the packages that `make clients` built, against a service that
 * sometimes responds with 503 and 429, and runs the programs that the console of /docs writes. All tests run at once, because some wait for a minute.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify, stripVTControlCharacters } from 'node:util';
import { describe, expect, it } from 'vitest';
import type { BrandedPhoneNumber, BrandedPhoneNumberPage } from '../generated/types/models/index.js';
import { openChromium } from '../test/browser/chromium.js';
import { ESCAPED_NAME } from './live/numbers.js';
import { programs, sample } from './live/samples.js';

const execute = promisify(execFile);

/** Without the user's .bashrc, which bash reads if its standard input is a socket, as a pipe of Node is. */
const BASH = ['--norc', '-ec'];

const { SERVICE_URL = '', FAILING_URL = '', CACHE = '', CLIENTS = '' } = process.env;

/** Returns the output that every sample must print: the approved numbers with a carrier status of AT&T. */
async function expected(): Promise<string> {
  const { items } = await page('size=100&carrier=AT%26T&status=approved');
  expect(items).toHaveLength(56);
  return printed(items);
}

/** Returns what a program prints for these numbers. */
const printed = (items: BrandedPhoneNumber[]) =>
  items.map(({ phoneNumber, status }) => `${phoneNumber} ${status}\n`).join('');

/** Returns the service's page of a query. */
async function page(query: string): Promise<BrandedPhoneNumberPage> {
  return (await fetch(`${SERVICE_URL}/v1/brandedPhoneNumbers?${query}`)).json();
}

/** The key that programs take from their environment. The service needs none, and ignores it. */
const KEY = 'a-key';
process.env.KEY = KEY;

interface ClientRun {
  /** The language of the samples in Markdown, and the tab of the console. */
  language: string;
  tab: string;
  /** The file that a program is saved as, and the command that runs it. */
  file(name: string): string;
  command(name: string): string;
}

const runs: Record<string, ClientRun> = {
  typescript: {
    language: 'js',
    tab: 'TypeScript',
    file: (name) => `${name}.mjs`,
    command: (name) => `node ${name}.mjs`,
  },
  python: {
    language: 'python',
    tab: 'Python',
    file: (name) => `${name}.py`,
    command: (name) => `bin/python ${name}.py`,
  },
  java: {
    language: 'java',
    tab: 'Java',
    file: (name) => `${name}.java`,
    command: (name) => `java -cp '*' ${name}.java`,
  },
  go: { language: 'go', tab: 'Go', file: (name) => `${name}/main.go`, command: (name) => `go run ./${name}` },
};

/** Saves a sample where the client is installed, with the address of the failing proxy. Returns the command that runs it. */
function saved(client: string, name: string, url: string, text?: string) {
  return savedProgram(client, name, sample(client, runs[client]?.language ?? '', url, text));
}

/** Saves a program where the client is installed. Returns the command that runs it there. */
async function savedProgram(client: string, name: string, program: string) {
  const run = runs[client];
  if (!run) throw new Error(`unknown client: ${client}`);
  const folder = join(CACHE, 'installed', client);
  const path = join(folder, run.file(name));
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, program);
  return { folder, command: run.command(name) };
}

const now = () => performance.timeOrigin + performance.now();

/** Returns the path of each request to this base URL of the failing proxy, and when it arrived, in milliseconds. */
async function requests(url: string): Promise<{ path: string; at: number; headers: Record<string, string> }[]> {
  return (await fetch(`${url}/requests`)).json();
}

const arrivals = async (url: string) => (await requests(url)).map(({ at }) => at);

/**
 * Runs the first program of a README against the failing proxy with these steps (live/failing.ts), until it fails with a
 * message. Returns the times between its requests, and from the last request to its end, in milliseconds.
 */
async function failSample(client: string, name: string, steps: string, message: RegExp): Promise<number[]> {
  const url = `${FAILING_URL}/${name}-${client}/${steps}`;
  const { folder, command } = await saved(client, name, url);
  // Ends the program before the test times out, so that no process is left.
  const program = execute('bash', [...BASH, `exec timeout 580 ${command}`], { cwd: folder });
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
  it.for(CLIENTS.split(' '))('in the %s client', async (client, { onTestFinished }) => {
    const folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-readme-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const url = `${FAILING_URL}/readme-${client}/size=20,503-1,ok,429-1,503-1,ok`;
    expect(await followReadme(client, url, folder)).toBe(await expected());
    for (const { headers } of await requests(url)) expect(headers.authorization).toBe(`Bearer ${KEY}`);
  });
});

describe.concurrent('The first program of the README', () => {
  it.each(CLIENTS.split(' '))(
    'waits as long as Retry-After says, and 30 seconds for a response, in the %s client',
    async (client) => {
      const message = /[Tt]ime(d )?out|deadline exceeded|within 30 seconds/;
      const [wait = 0, limit = 0, ...more] = await failSample(client, 'Slow', '503-20,silent', message);
      expect(wait).toBeGreaterThan(19_500);
      // From the first response: the client's time begins before its second request arrives.
      expect(wait + limit).toBeGreaterThan(49_500);
      expect(more).toEqual([]);
    },
  );

  it.each(CLIENTS.split(' '))('retries for a minute, in the %s client', async (client) => {
    const waits = await failSample(client, 'Limited', '503,429-20*', /429 Unavailable: Try/);
    // The last one is that until its end.
    expect(waits).toHaveLength(4);
  });
});

describe.concurrent('The program of the README that resumes a walk', () => {
  it.runIf(CLIENTS.includes('java'))('writes names in UTF-8, in the java client', async () => {
    const { folder, command } = await saved('java', 'Names', SERVICE_URL, 'progress');
    const path = join(folder, 'names', 'Names.java');
    await mkdir(dirname(path), { recursive: true });
    const program = await readFile(join(folder, 'Names.java'), 'utf8');
    await writeFile(path, program.replace('number.getStatus()', 'number.getBrandingNameShort()'));
    await execute('bash', [...BASH, command.replace("'*'", "'../*'")], { cwd: dirname(path) });
    expect(await readFile(join(dirname(path), 'numbers.txt'), 'utf8')).toContain('+14155550003 Café & Co\n');
  });

  it.each(CLIENTS.split(' '))('writes each number once, also if it is killed, in the %s client', async (client) => {
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
  });
});

describe.concurrent('The program that the console of /docs writes', () => {
  it('sends every filter of a query, and prints the numbers that match, in all clients', async () => {
    const url = `${FAILING_URL}/console/ok`;
    const query = [
      `phoneNumber=%2B14155550187&internalName=${encodeURIComponent(ESCAPED_NAME)}&internalName=%EF%BB%BF$$`,
      'reportingGroup=Sales+%2B+Service&businessProfileId=5d9dc9f8-1818-4811-892f-902bd23f0824',
      'carrier=AT%26T&carrier=T-Mobile&feature=brandedCallerId&feature=spamRemediation',
      'status=submitted+for+review&status=approved.optIn&detailedStatus=pending.initialOptIn&size=5',
    ].join('&');
    const { items } = await page(query);
    expect(items).toHaveLength(1);
    const programs = await programsOfConsole(url, query);
    const outputs = programs.map(async ({ client, program }) => {
      const { folder, command } = await savedProgram(client, 'Console', program);
      const { stdout } = await execute('bash', [...BASH, command], { cwd: folder });
      return [client, stdout];
    });
    expect(await Promise.all(outputs)).toEqual(programs.map(({ client }) => [client, printed(items)]));
    const listed = (await requests(url)).filter(({ path }) => path.startsWith('/v1/'));
    expect(listed.map(({ path }) => pairs(path))).toEqual(programs.map(() => pairs(`?${query}`)));
    for (const { headers } of listed) expect(headers.authorization).toBe(`Bearer ${KEY}`);
  });
});

/** Returns the parameters of a path with a query, each with its value, in the order of the alphabet. */
const pairs = (path: string) => [...new URLSearchParams(path.replace(/.*?\?/, ''))].map(String).toSorted();

/** Returns the program of each client that /docs behind the failing proxy shows for a query. */
async function programsOfConsole(url: string, query: string): Promise<{ client: string; program: string }[]> {
  const browser = await openChromium();
  try {
    const docs = await browser.newPage();
    await docs.goto(`${url}/docs`);
    await docs.getByLabel('Query').fill(query);
    const read = CLIENTS.split(' ').map(async (client) => {
      const panel = docs.locator(`#response [data-panel="${runs[client]?.tab}"]`);
      return { client, program: (await panel.textContent()) ?? '' };
    });
    return await Promise.all(read);
  } finally {
    await browser.close();
  }
}
