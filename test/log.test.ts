/** The log: readable lines on a terminal, JSON otherwise; on outputs that hang, close, or are full. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import { afterEach, describe, expect, it } from 'vitest';
import { contract } from '../src/contract.js';
import { packageFolder } from '../src/packageFolder.js';
import { copyCheckout } from './installation/checkout.js';
import { runProgram, runServe } from './support/command.js';
import { useDatabase } from './support/database.js';
import { freePort } from './support/port.js';
import { isInstalled } from './support/programs.js';
import { MAIN } from './support/serverProcess.js';
import { useTemporaryFolder } from './support/temporaryFolder.js';
import { until } from './support/until.js';

const LOG = pathToFileURL(join(packageFolder, 'dist/src/log.js'));
const CTRL_C = '\x03';

const database = useDatabase();
const folder = useTemporaryFolder('branded-phone-numbers-log-');
let child: ChildProcess;
afterEach(() => void child?.kill('SIGKILL'));

it('the log is readable on a terminal, with one line per event', async () => {
  const output = start('script', terminal(MAIN, 'serve'));
  await requestList(await listening(output));
  await until(() => output().includes('"status":200'), 'the request is logged');
  child.stdin?.write(CTRL_C);
  expect(await once(child, 'close')).toEqual([0, null]);

  const lines = stripVTControlCharacters(output())
    .replace('^C', '') // the terminal echoes it before the next line
    .split('\r\n')
    .filter((line) => /\b(INFO|WARN|ERROR)\b/.test(line));
  expect(lines.filter((line) => !/^\[\d\d:\d\d:\d\d\.\d{3}\] (INFO|WARN): /.test(line))).toEqual([]);
  expect(lines).toEqual(
    expect.arrayContaining([
      expect.stringMatching(/INFO: listening on http:/),
      expect.stringMatching(/INFO: \{.*"route":"\/v1\/brandedPhoneNumbers","status":200.*\}$/),
      expect.stringMatching(/INFO: SIGINT: closing$/),
    ]),
  );
});

it('the log is JSON without a terminal, and omits successful health checks', async () => {
  const service = await runServe([], { DATABASE_URL: database.url });
  await service.untilAlive();
  await service.untilReady();
  expect((await service.get('/v1/brandedPhoneNumbers'))?.status).toBe(200);
  service.stop('SIGINT');
  expect(await service.end()).toBe(0);
  const events = eventsIn(service.out.stdout);
  expect(events[0]).toMatchObject({ level: 30, version: contract.info.version, msg: 'starting' });
  expect(events).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ level: 30, msg: expect.stringMatching(/^listening on /) }),
      expect.objectContaining({ level: 30, route: '/v1/brandedPhoneNumbers', status: 200 }),
      expect.objectContaining({ level: 30, msg: 'SIGINT: closing' }),
    ]),
  );
  expect(events.filter(({ route = '', status }) => /z$/.test(route) && status === 200)).toEqual([]);
});

/**
 * Returns the arguments of `script` that run Node in a terminal, as its only process: `script` passes signals on to nothing
 * else, and without exec, some shells keep running and receive the Ctrl-C, too.
 */
function terminal(...args: string[]): string[] {
  const command = [process.execPath, ...args].map((arg) => `'${arg}'`).join(' ');
  return ['--quiet', '--return', '--command', `exec ${command}`, '/dev/null'];
}

/** Writes a program that logs a line for each request, as `serve` does but without its cost, and returns its path. */
function logging(): string {
  const file = join(folder.path, 'logging.mjs');
  writeFileSync(
    file,
    `
    import { createServer } from 'node:http';
    import { flushLog, openLog } from '${LOG}';
    const log = openLog({ LOG_LEVEL: 'info' });
    const server = createServer((request, response) => {
      log.info({ status: 404, detail: 'x'.repeat(250) });
      response.writeHead(404).end();
    });
    server.listen(process.env.PORT, '127.0.0.1', () => log.info('listening on http://127.0.0.1:' + server.address().port));
    process.once('SIGTERM', async () => {
      log.info('SIGTERM: closing');
      await flushLog(log);
      process.exit();
    });`,
  );
  return file;
}

const eventsIn = (text: string) =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));

/** Starts a program that serves, stops reading its log and sends requests. */
async function hang(requests: number, program: string, args: string[]) {
  const output = start(program, args);
  const url = await listening(output);
  child.stdout?.pause();
  await flood(url, requests);
  return { url, output };
}

/** Sends requests, and waits for their responses. */
async function flood(url: string, requests: number): Promise<void> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname).on('error', () => {});
  const id = 'x'.repeat(120);
  socket.write(`GET /nowhere HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: ${id}\r\n\r\n`.repeat(requests));
  let responses = 0;
  let text = '';
  for await (const chunk of socket) {
    // Keep the last characters: a status line may be split between two chunks.
    text = text.slice(-11) + chunk;
    responses += text.split('HTTP/1.1 404').length - 1;
    if (responses === requests) break;
  }
}

describe('a log reader that hangs', () => {
  it('loses the lines beyond the buffer, and their number is logged once it reads again', async () => {
    const { url, output } = await hang(20_000, process.execPath, [logging()]);
    expect((await fetch(url)).status).toBe(404);
    child.stdout?.resume();
    await until(() => /"lostLines":\d+/.test(output()), 'the number of lost lines is logged', 30_000);
    const lost = Number(/"lostLines":(\d+)/.exec(output())?.[1]);
    const kept = () => output().split('"status":404').length - 1;
    await until(() => kept() + lost >= 20_001, 'all other lines are read', 30_000);
    expect(kept() + lost).toBe(20_001);
    expect(output().length).toBeLessThan(6_000_000);
  });

  it.each([
    ['with 0 after SIGTERM', 1, [0, null]],
    ['after a second SIGTERM', 2, [null, 'SIGTERM']],
  ])('does not keep the process from exiting %s', async (_name, signals, expected) => {
    await hang(1000, process.execPath, [MAIN, 'serve']);
    child.kill('SIGTERM');
    for (let i = 1; i < signals; i++) await sleep(400).then(() => child.kill('SIGTERM'));
    expect(await once(child, 'exit')).toEqual(expected);
  });
});

it('a log reader that closes the pipe does not end the service, also if its packages are symbolic links, as pnpm installs them', async () => {
  const app = join(folder.path, 'app');
  await copyCheckout(app);
  cpSync(join(packageFolder, 'dist'), join(app, 'dist'), { recursive: true });
  mkdirSync(join(app, 'node_modules'));
  for (const name of readdirSync(join(packageFolder, 'node_modules'))) {
    symlinkSync(join(packageFolder, 'node_modules', name), join(app, 'node_modules', name));
  }
  const url = await listening(start(process.execPath, [join(app, 'dist/src/main.js'), 'serve']));
  await requestList(url);
  child.stdout?.destroy();
  await flood(url, 3000);
  expect((await fetch(`${url}/healthz`)).status).toBe(200);
  child.kill('SIGINT');
  expect(await once(child, 'exit')).toEqual([0, null]);
});

describe('a log on a terminal', () => {
  it('that is paused keeps a program neither from responding nor from exiting', async () => {
    const { url } = await hang(3000, 'script', terminal(logging()));
    expect((await fetch(url)).status).toBe(404);
    const service = serviceIn(child);
    process.kill(service, 'SIGTERM');
    await until(() => hasEnded(service), 'it ends', 30_000);
  });

  it('that is closed does not keep the service from exiting', async () => {
    await listening(start('script', terminal(MAIN, 'serve')));
    const service = serviceIn(child);
    child.kill('SIGKILL');
    await until(() => hasEnded(service), 'the service ends', 30_000);
  });
});

/** Settings that make `serve` fail, and what it then says. */
const UNUSABLE = { PORT: '0', METRICS_PORT: '1', METRICS_HOST: '192.0.2.1' };
const UNUSABLE_REASON = /address not available 192\.0\.2\.1.*; choose another METRICS_PORT or METRICS_HOST\n$/;

it('the log has the reason for a failed start', async () => {
  const environment = { DATABASE_URL: database.url, ...UNUSABLE };
  const { code, stdout, stderr } = await runProgram(['serve'], '', { environment });
  expect([code, stderr]).toEqual([1, expect.stringMatching(UNUSABLE_REASON)]);
  expect(eventsIn(stdout)).toEqual([expect.objectContaining({ level: 60, msg: expect.stringContaining('192.0.2.1') })]);
});

describe('a log in a file that cannot be written', () => {
  // The soft limit of a file's size stands for a full disk: a write up to it is partial, and a further one fails.
  const LIMITED = `trap '' XFSZ; ulimit -S -f 16; exec "$0" "$@"`;

  it.skipIf(process.platform !== 'linux').each([
    ['after SIGTERM', 1],
    ['after a second SIGTERM', 2],
  ])('does not keep the service from exiting %s', async (_name, signals) => {
    const url = await serveInto('/dev/full', { DRAIN_SECONDS: signals === 1 ? '0' : '60' });
    await flood(url, 100);
    child.kill('SIGTERM');
    if (signals === 2) await sleep(400).then(() => child.kill('SIGTERM'));
    expect(await once(child, 'exit')).toEqual(signals === 1 ? [0, null] : [null, 'SIGTERM']);
  });

  it.skipIf(process.platform !== 'linux')(
    'does not keep the reason for a failed start from standard error',
    async () => {
      await logInto('/dev/full', process.execPath, [MAIN, 'serve'], { DATABASE_URL: database.url, ...UNUSABLE });
      let reason = '';
      child.stderr?.on('data', (data) => (reason += data));
      expect(await once(child, 'close')).toEqual([1, null]);
      expect(reason).toMatch(UNUSABLE_REASON);
    },
  );

  it.runIf(isInstalled('prlimit'))(
    'loses only lines beyond the buffer, and continues once there is space',
    async () => {
      const file = join(folder.path, 'log');
      const url = await serveInto(file, {}, 'bash', ['-c', LIMITED, process.execPath, logging()]);
      await flood(url, 20_000);
      execFileSync('prlimit', ['--pid', String(child.pid), '--fsize=unlimited:unlimited']);
      await until(
        () => readFileSync(file, 'utf8').includes('"lostLines"'),
        'the number of lost lines is logged',
        30_000,
      );
      child.kill('SIGTERM');
      expect((await once(child, 'exit'))[0]).toBe(0);
      const events = eventsIn(readFileSync(file, 'utf8'));
      const lost = events.find(({ lostLines }) => lostLines).lostLines;
      // With the request of `serveInto`.
      expect(events.filter(({ status }) => status === 404).length + lost).toBe(20_001);
      expect(events.at(-1)).toMatchObject({ msg: 'SIGTERM: closing' });
    },
  );

  it.runIf(isInstalled('prlimit'))(
    'counts the lost lines even if only a byte of the space was missing before them',
    async () => {
      const file = join(folder.path, 'counted');
      // The first line exceeds the limit of 16 KB by a byte, so that the buffer is still full once that byte is written.
      const script = `
      import { openLog } from '${LOG}';
      import { execFileSync } from 'node:child_process';
      import { readFileSync } from 'node:fs';
      import { hostname } from 'node:os';
      import { setTimeout as sleep } from 'node:timers/promises';
      const log = openLog({ LOG_LEVEL: 'info' });
      const empty = JSON.stringify({ level: 30, time: Date.now(), pid: process.pid, hostname: hostname(), msg: '' }) + '\\n';
      log.info('x'.repeat(16 * 1024 + 1 - empty.length));
      await sleep(300);
      for (let i = 1; i < 6000; i++) log.info('x'.repeat(900));
      execFileSync('prlimit', ['--pid', String(process.pid), '--fsize=unlimited:unlimited']);
      while (!readFileSync(process.argv[1], 'utf8').includes('lostLines')) await sleep(100);`;
      await logInto(file, 'bash', ['-c', LIMITED, process.execPath, '--input-type=module', '--eval', script, file]);
      expect((await once(child, 'exit'))[0]).toBe(0);
      const events = eventsIn(readFileSync(file, 'utf8'));
      const lost = events.filter(({ lostLines }) => lostLines).map(({ lostLines }) => lostLines);
      expect(lost).toHaveLength(1);
      expect(events.length - 1 + lost[0]).toBe(6000);
    },
  );

  /** Starts a program with its standard output in `file`. */
  async function logInto(file: string, program: string, args: string[], settings = {}): Promise<void> {
    const log = await open(file, 'w');
    child = spawn(program, args, { env: { ...process.env, ...settings }, stdio: ['ignore', log.fd, 'pipe'] });
    await log.close();
  }

  /** Starts the service with its log in a file, and returns its URL. */
  async function serveInto(file: string, settings: object, program = process.execPath, args = [MAIN, 'serve']) {
    const port = String(await freePort());
    await logInto(file, program, args, { PORT: port, LOG_LEVEL: 'info', DATABASE_URL: database.url, ...settings });
    const url = `http://127.0.0.1:${port}`;
    await until(
      () =>
        fetch(`${url}/readyz`).then(
          ({ status }) => status !== 503,
          () => false,
        ),
      'the service is ready',
      60_000,
    );
    return url;
  }
});

/** Starts a program, and returns a function that returns its standard output so far. */
function start(program: string, args: string[]): () => string {
  const { NO_COLOR: _, ...environment } = process.env;
  child = spawn(program, args, { env: { ...environment, PORT: '0', LOG_LEVEL: 'info', DATABASE_URL: database.url } });
  let output = '';
  child.stdout?.on('data', (data) => (output += data));
  return () => output;
}

/** Returns the service that runs in the terminal of `script`. */
function serviceIn(terminal: ChildProcess): number {
  return Number(readFileSync(`/proc/${terminal.pid}/task/${terminal.pid}/children`, 'utf8'));
}

/** Returns whether a process has ended, even if it was not waited for. */
function hasEnded(id: number): boolean {
  try {
    return readFileSync(`/proc/${id}/cmdline`, 'utf8') === '';
  } catch {
    return true;
  }
}

async function listening(output: () => string): Promise<string> {
  const url = () => /listening on (http:\/\/[\d.:]+)/.exec(output())?.[1];
  await until(() => url() !== undefined, 'the service listens', 30_000);
  return url() ?? '';
}

async function requestList(url: string): Promise<void> {
  expect((await fetch(`${url}/v1/brandedPhoneNumbers`)).status).toBe(200);
}
