/** Programs that log to a terminal, a pipe or a file, and what they wrote. */
import { type ChildProcess, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeAll } from 'vitest';
import { packageFolder } from '../src/packageFolder.js';
import { useDatabase } from './support/database.js';
import { freePort } from './support/port.js';
import { MAIN } from './support/serverProcess.js';
import { useTemporaryFolder } from './support/temporaryFolder.js';
import { until } from './support/until.js';

export const LOG = pathToFileURL(join(packageFolder, 'dist/src/log.js'));

export let folder: string;
export let databaseUrl: string;
/** The program that was started last. */
export let child: ChildProcess;

/** Makes a folder and a database for the programs of a file, and ends each after its test. */
export function usePrograms(): void {
  const database = useDatabase();
  const temporary = useTemporaryFolder('branded-phone-numbers-log-');
  beforeAll(() => {
    [folder, databaseUrl] = [temporary.path, database.url];
  });
  afterEach(() => void child?.kill('SIGKILL'));
}

/** Writes a program that logs a line for each request, as `serve` does but without its cost, and returns its path. */
export function logging(): string {
  const file = join(folder, 'logging.mjs');
  writeFileSync(
    file,
    `
    import { createServer } from 'node:http';
    import { flushLog, openLog } from '${LOG}';
    const log = openLog({ LOG_LEVEL: 'info' });
    const server = createServer((request, response) => {
      log.info({ status: 404, detail: 'x'.repeat(4000) });
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

export const eventsIn = (text: string) =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));

/** Starts a program that serves, stops reading its log and sends requests. */
export async function hang(requests: number, program: string, args: string[]) {
  const output = start(program, args);
  const url = await listening(output);
  child.stdout?.pause();
  await flood(url, requests);
  return { url, output };
}

/** Sends requests on a few connections, and waits for their responses. */
export async function flood(url: string, requests: number): Promise<void> {
  const headers = { 'X-Request-Id': 'x'.repeat(120) };
  let unsent = requests;
  const send = async () => {
    while (unsent-- > 0) await (await fetch(`${url}/nowhere`, { headers })).arrayBuffer();
  };
  await Promise.all(Array.from({ length: 10 }, send));
}

// The soft limit of a file's size stands for a full disk: a write up to it is partial, and a further one fails.
export const LIMITED = `trap '' XFSZ; ulimit -S -f 16; exec "$0" "$@"`;

/** Starts a program with its standard output in `file`. */
export async function logInto(file: string, program: string, args: string[], settings = {}): Promise<void> {
  const log = await open(file, 'w');
  child = spawn(program, args, { env: { ...process.env, ...settings }, stdio: ['ignore', log.fd, 'pipe'] });
  await log.close();
}

/** Starts the service with its log in a file, and returns its URL. */
export async function serveInto(file: string, settings: object, program = process.execPath, args = [MAIN, 'serve']) {
  const port = String(await freePort());
  await logInto(file, program, args, { PORT: port, LOG_LEVEL: 'info', DATABASE_URL: databaseUrl, ...settings });
  const url = `http://127.0.0.1:${port}`;
  const status = async () => (await fetch(`${url}/readyz`).catch(() => undefined))?.status ?? 503;
  await until(async () => (await status()) !== 503, 'the service is ready', 60_000);
  return url;
}

/** Starts a program, and returns a function that returns its standard output so far. */
export function start(program: string, args: string[]): () => string {
  const { NO_COLOR: _, ...environment } = process.env;
  child = spawn(program, args, { env: { ...environment, PORT: '0', LOG_LEVEL: 'info', DATABASE_URL: databaseUrl } });
  let output = '';
  child.stdout?.on('data', (data) => (output += data));
  return () => output;
}

export async function listening(output: () => string): Promise<string> {
  const url = () => /listening on (http:\/\/[\d.:]+)/.exec(output())?.[1];
  await until(() => url() !== undefined, 'the service listens');
  return url() ?? '';
}
