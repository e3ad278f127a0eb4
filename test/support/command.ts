/**
 * The command, on a new database and in a new folder. It runs in this process, unless a test needs signals, pipes or limits:
 * then it is a process of the built program, which takes half a second of CPU time to start.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import { symlink } from 'node:fs/promises';
import { constants } from 'node:os';
import { join } from 'node:path';
import { Readable, type Writable } from 'node:stream';
import { type Command, CommanderError } from 'commander';
import type { Sql } from 'postgres';
import { afterAll, beforeAll, onTestFinished, vi } from 'vitest';
import { runCommand } from '../../src/operator/commands/failure.js';
import { createProgram } from '../../src/operator/commands/program.js';
import { Stopped } from '../../src/operator/commands/signals.js';
import { type TestConnection as Database, useDatabase } from './database.js';
import { freePort } from './port.js';
import { MAIN } from './serverProcess.js';
import { useTemporaryFolder } from './temporaryFolder.js';
import { until } from './until.js';

interface Finished {
  /** The exit status, as a shell reports it. */
  code: number | null;
  stdout: string;
  /** Without its first line, which names the database, and without the progress that a busy machine adds. */
  stderr: string;
  /** The first line of standard error. */
  database: string;
}

interface Running {
  child: ChildProcess;
  /** Its output so far. */
  out: Output;
  finished: Promise<Finished>;
}

interface Around {
  /** All its variables; by default only DATABASE_URL. */
  environment?: Record<string, string>;
  /** Its working directory; by default the folder of `Commands`. */
  folder?: string;
  /** Replaces standard output. */
  stdout?: Writable;
  /** Stands for the first signal of the system. */
  stop?: AbortSignal | undefined;
  /** Gets the output while the command runs. */
  out?: Output;
}

interface Output {
  stdout: string;
  stderr: string;
}

export interface Commands {
  /** The working directory of the commands. */
  folder: string;
  databaseUrl: string;
  /** One connection, and a pool, to this database. */
  sql: Sql;
  drizzle: Database;
  /** Returns the phone numbers in this database, in order. */
  phoneNumbers(): Promise<string[]>;
  /** Runs the command in this process, with `input` as standard input; only one at a time. */
  run(args: string[], input?: string | Readable, around?: Around): Promise<Finished>;
  /** Starts a process with no variables but `environment`, so without DATABASE_URL. */
  start(args: string[], environment?: Record<string, string>): Running;
  /** Runs a line of bash, in which `$command` is the command. */
  shell(line: string): Promise<Finished>;
}

/** Returns what a command printed, without its progress. */
export const withoutProgress = (printed: string) =>
  printed.replace(/^(read |wrote |looking |checked |exported \d+ numbers? so far).*\n/gm, '');

const finishedWith = (code: number | null, stdout: string, stderr: string): Finished => {
  const [database = ''] = /^database: .*\n/.exec(stderr) ?? [];
  return { code, stdout, stderr: withoutProgress(stderr.slice(database.length)), database };
};

const NEVER = new AbortController().signal;

/** Runs a command line in this process. */
export async function runProgram(
  args: string[],
  input: string | Readable = '',
  { environment, folder, stdout, stop = NEVER, out = { stdout: '', stderr: '' } }: Around = {},
) {
  const capture = (command: Command) => {
    command.exitOverride().configureOutput({
      writeOut: (text) => (out.stdout += text),
      writeErr: (text) => (out.stderr += text),
      getOutHelpWidth: () => 80,
    });
    command.commands.forEach(capture);
  };
  const program = createProgram({ first: stop, second: NEVER });
  capture(program);
  const { env, exitCode } = process;
  const cwd = process.cwd();
  const stdin = typeof input === 'string' ? Readable.from([Buffer.from(input)]) : input;
  const writeFile = fs.write as (...parameters: unknown[]) => void;
  const spies = [
    vi.spyOn(process, 'stdin', 'get').mockReturnValue(stdin as typeof process.stdin),
    vi.spyOn(console, 'error').mockImplementation((text) => {
      out.stderr += `${text}\n`;
    }),
    vi.spyOn(process.stdout, 'write').mockImplementation(((text: string, done?: (error?: Error | null) => void) => {
      if (stdout) return stdout.write(text, done);
      out.stdout += text;
      done?.();
      return true;
    }) as typeof process.stdout.write),
    // The log of `serve`.
    vi.spyOn(fs, 'write').mockImplementation(((fd: number, text: string, ...rest: unknown[]) => {
      if (fd !== 1) return writeFile(fd, text, ...rest);
      out.stdout += text;
      setImmediate(rest[0] as (...parameters: unknown[]) => void, null, Buffer.byteLength(text));
    }) as typeof fs.write),
  ];
  try {
    process.env = { PATH: env.PATH, LOG_LEVEL: 'warn', ...environment };
    process.exitCode = 0;
    if (folder) process.chdir(folder);
    await runCommand(() =>
      program.parseAsync(args, { from: 'user' }).catch((error: unknown) => {
        if (!(error instanceof CommanderError)) throw error;
        process.exitCode = error.exitCode;
      }),
    );
    return finishedWith(Number(process.exitCode), out.stdout, out.stderr);
  } finally {
    for (const spy of spies) spy.mockRestore();
    Object.assign(process, { env, exitCode });
    process.chdir(cwd);
  }
}

/** Runs a command line in this process, on the database at `url`. */
export const runOn = (url: string, args: string[], input?: string | Readable) =>
  runProgram(args, input, { environment: { DATABASE_URL: url } });

/** Runs `serve` in this process for the current test; no other command may run in it meanwhile. */
export async function runServe(args: string[], environment: Record<string, string>) {
  const [port, metricsPort] = [await freePort(), await freePort()];
  const settings = { PORT: String(port), METRICS_PORT: String(metricsPort), DRAIN_SECONDS: '0', LOG_LEVEL: 'info' };
  const stop = new AbortController();
  const out: Output = { stdout: '', stderr: '' };
  const finished = runProgram(['serve', ...args], '', {
    environment: { ...settings, ...environment },
    stop: stop.signal,
    out,
  });
  onTestFinished(async () => {
    stop.abort(new Stopped('SIGTERM'));
    await finished;
  });
  const get = (from: number, path: string) =>
    fetch(`http://127.0.0.1:${from}${path}`).then(
      async (response) => ({ status: response.status, body: await response.text() }),
      () => undefined,
    );
  const untilOk = (path: string) =>
    until(async () => (await get(port, path))?.status === 200, `${path} is 200`, 30_000);
  return {
    /** Its output so far. */
    out,
    get: (path: string) => get(port, path),
    getAsOperator: (path: string) => get(metricsPort, path),
    untilAlive: () => untilOk('/healthz'),
    untilReady: () => untilOk('/readyz'),
    /** Waits until it has ended, and returns its exit status. */
    end: async () => (await finished).code,
    /** Does what SIGTERM does, or another signal. */
    stop: (signal: NodeJS.Signals = 'SIGTERM') => stop.abort(new Stopped(signal)),
  };
}

/** Returns the command on a migrated database without numbers, for all tests of a file. */
export function useCommand(): Commands {
  const commands = {} as Commands;
  const running = new Set<ChildProcess>();
  const database = useDatabase();
  const temporary = useTemporaryFolder('branded-phone-numbers-command-');

  function start(program: string, args: string[], given: Record<string, string>): Running {
    const child = spawn(program, args, {
      cwd: commands.folder,
      env: {
        PATH: process.env.PATH ?? '',
        HOME: commands.folder,
        LOG_LEVEL: 'warn',
        command: `${process.execPath} ${join(commands.folder, 'main.js')}`,
        ...given,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    running.add(child);
    const out = { stdout: '', stderr: '' };
    child.stdout.setEncoding('utf8').on('data', (data) => (out.stdout += data));
    child.stderr.setEncoding('utf8').on('data', (data) => (out.stderr += data));
    const finished = once(child, 'close').then(([code, signal]) => {
      running.delete(child);
      return finishedWith(code ?? 128 + constants.signals[signal as NodeJS.Signals], out.stdout, out.stderr);
    });
    return { child, out, finished };
  }

  beforeAll(async () => {
    const folder = temporary.path;
    // bash splits at spaces, which the checkout's path may have.
    await symlink(MAIN, join(folder, 'main.js'));
    const own = { DATABASE_URL: database.url };
    Object.assign(commands, {
      folder,
      databaseUrl: database.url,
      sql: database.sql,
      drizzle: database.drizzle,
      async phoneNumbers() {
        const rows = await database.sql`SELECT phone_number FROM branded_phone_numbers ORDER BY phone_number`;
        return rows.map(({ phone_number }) => phone_number);
      },
      run: (args: string[], input: string | Readable = '', around: Around = {}) =>
        runProgram(args, input, { environment: own, folder, ...around }),
      start: (args: string[], environment: Record<string, string> = {}) =>
        start(process.execPath, [MAIN, ...args], environment),
      shell: (line: string) => start('bash', ['-c', line], own).finished,
    });
  });
  afterAll(() => {
    for (const child of running) child.kill('SIGKILL');
  });
  return commands;
}
