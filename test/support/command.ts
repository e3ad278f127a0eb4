/**
 * The command: mostly in this process, on a database and in a folder of its own; as a real process, of the built program,
 * where a test needs what only a process has (signals, pipes, limits). Each of those takes half a second of a core to start.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable, type Writable } from 'node:stream';
import { type Command, CommanderError } from 'commander';
import { afterAll, beforeAll, vi } from 'vitest';
import { runCommand } from '../../src/operator/commands/failure.js';
import { createProgram } from '../../src/operator/commands/program.js';
import { packageFolder } from '../../src/packageFolder.js';
import { createDatabase } from './database.js';

const MAIN = join(packageFolder, 'dist/src/main.js');

interface Finished {
  code: number | null;
  stdout: string;
  /** Without the first line, in which each command names the database. */
  stderr: string;
  /** That line. */
  database: string;
}

interface Running {
  child: ChildProcess;
  finished: Promise<Finished>;
}

interface Around {
  /** All variables that it sees; its database unless given. */
  environment?: Record<string, string>;
  /** Where it runs; in the commands' folder unless given. */
  folder?: string;
  /** What stands in for standard output. */
  stdout?: Writable;
}

export interface Commands {
  /** Where the commands run. */
  folder: string;
  databaseUrl: string;
  /** Runs the command to its end in this process, with `input` as standard input; one at a time. */
  run(args: string[], input?: string | Readable, around?: Around): Promise<Finished>;
  /** Starts it as a process with nothing but `environment`, without the test's database. */
  start(args: string[], environment?: Record<string, string>): Running;
  /** Runs a line of bash to its end, in which `$command` is the command. */
  shell(line: string): Promise<Finished>;
}

const finishedWith = (code: number | null, stdout: string, stderr: string): Finished => {
  const [database = ''] = /^database: .*\n/.exec(stderr) ?? [];
  return { code, stdout, stderr: stderr.slice(database.length), database };
};

const NEVER = new AbortController().signal;

/** Runs a command line to its end in this process. */
export async function runProgram(
  args: string[],
  input: string | Readable = '',
  { environment, folder, stdout }: Around = {},
) {
  const out = { stdout: '', stderr: '' };
  const capture = (command: Command) => {
    command.exitOverride().configureOutput({
      writeOut: (text) => (out.stdout += text),
      writeErr: (text) => (out.stderr += text),
      getOutHelpWidth: () => 80,
    });
    command.commands.forEach(capture);
  };
  const program = createProgram({ requested: NEVER, forced: NEVER });
  capture(program);
  const { env, exitCode } = process;
  const cwd = process.cwd();
  const stdin = typeof input === 'string' ? Readable.from([Buffer.from(input)]) : input;
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

/** The command on a migrated database without numbers, for all tests of a file. */
export function useCommand(): Commands {
  const commands = {} as Commands;
  const running = new Set<ChildProcess>();
  let drop: () => Promise<void>;

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
    const finished = once(child, 'close').then(([code]) => {
      running.delete(child);
      return finishedWith(code, out.stdout, out.stderr);
    });
    return { child, finished };
  }

  beforeAll(async () => {
    const database = await createDatabase();
    drop = database.drop;
    const folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-command-'));
    // For bash: a path without spaces, wherever the checkout is.
    await symlink(MAIN, join(folder, 'main.js'));
    const own = { DATABASE_URL: database.url };
    Object.assign(commands, {
      folder,
      databaseUrl: database.url,
      run: (args: string[], input: string | Readable = '', around: Around = {}) =>
        runProgram(args, input, { environment: own, folder, ...around }),
      start: (args: string[], environment: Record<string, string> = {}) =>
        start(process.execPath, [MAIN, ...args], environment),
      shell: (line: string) => start('bash', ['-c', line], own).finished,
    });
  });
  afterAll(async () => {
    for (const child of running) child.kill('SIGKILL');
    await drop();
    await rm(commands.folder, { recursive: true, force: true });
  });
  return commands;
}
