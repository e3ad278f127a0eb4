/** The log of the built command: readable lines on a terminal, JSON otherwise. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { constants } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { stripVTControlCharacters } from 'node:util';
import { afterEach, describe, expect, it } from 'vitest';
import { packageFolder } from '../src/packageFolder.js';
import { useDatabase } from './support/database.js';
import { listeningUrlIn } from './support/listeningUrl.js';
import { until } from './support/until.js';

const MAIN = join(packageFolder, 'dist/src/main.js');
const CTRL_C = '\x03';

const database = useDatabase();
let child: ChildProcess;
afterEach(() => child.kill('SIGKILL'));

it('the log is readable on a terminal, with one line per event', async () => {
  // Without exec, some shells keep running and receive the Ctrl-C, too.
  const serve = `exec '${process.execPath}' '${MAIN}' serve`;
  const output = start('script', ['--quiet', '--return', '--command', serve, '/dev/null']);
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
  const output = start(process.execPath, [MAIN, 'serve']);
  const url = await listening(output);
  for (const path of ['/healthz', '/readyz']) expect((await fetch(url + path)).status).toBe(200);
  await requestList(url);
  await until(() => output().includes('"status":200'), 'the request is logged');
  child.kill('SIGINT');
  await once(child, 'close');
  const events = output()
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(events).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ level: 30, msg: expect.stringMatching(/^listening on /) }),
      expect.objectContaining({ level: 30, route: '/v1/brandedPhoneNumbers', status: 200 }),
      expect.objectContaining({ level: 30, msg: 'SIGINT: closing' }),
    ]),
  );
  expect(events.filter(({ route = '' }) => /z$/.test(route))).toEqual([]);
});

describe('a log reader that hangs', () => {
  /** Starts the service, stops reading its log and sends requests. */
  async function hang(requests: number): Promise<{ url: string; output: () => string }> {
    const output = start(process.execPath, [MAIN, 'serve']);
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

  it('loses the lines beyond the buffer, and their number is logged once it reads again', async () => {
    const { url, output } = await hang(20_000);
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    child.stdout?.resume();
    await until(() => /"lostLines":\d+/.test(output()), 'the number of lost lines is logged');
    const lost = Number(/"lostLines":(\d+)/.exec(output())?.[1]);
    const kept = () => output().split('"status":404').length - 1;
    await until(() => kept() + lost >= 20_000, 'all other lines are read');
    expect(kept() + lost).toBe(20_000);
    expect(output().length).toBeLessThan(6_000_000);
  });

  it.each([
    ['with 0 after SIGTERM', 1, 0],
    ['after a second SIGTERM', 2, 128 + constants.signals.SIGTERM],
  ])('does not keep the process from exiting %s', async (_name, signals, code) => {
    await hang(3000);
    child.kill('SIGTERM');
    for (let i = 1; i < signals; i++) await sleep(400).then(() => child.kill('SIGTERM'));
    expect(await once(child, 'exit')).toEqual([code, null]);
  });
});

/** Starts a program, and returns a function that returns its standard output so far. */
function start(program: string, args: string[]): () => string {
  const { NO_COLOR: _, ...environment } = process.env;
  child = spawn(program, args, { env: { ...environment, PORT: '0', LOG_LEVEL: 'info', DATABASE_URL: database.url } });
  let output = '';
  child.stdout?.on('data', (data) => (output += data));
  return () => output;
}

async function listening(output: () => string): Promise<string> {
  await until(() => listeningUrlIn(output()) !== undefined, 'the service listens', 30_000);
  return listeningUrlIn(output()) ?? '';
}

async function requestList(url: string): Promise<void> {
  expect((await fetch(`${url}/v1/brandedPhoneNumbers`)).status).toBe(200);
}
