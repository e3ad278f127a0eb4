/** The command as it is built and run: real processes, in a folder of their own. Each takes half a second of a core to start. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { createDatabase } from '../database.js';

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

export interface Commands {
  /** Where the commands run. */
  folder: string;
  databaseUrl: string;
  /** Runs the command on the database to its end, with `input` as standard input. */
  run(args: string[], input?: string): Promise<Finished>;
  /** Starts it with nothing but `environment`, without the test's database, in `cwd` if it is given. */
  start(args: string[], environment?: Record<string, string>, cwd?: string): Running;
  /** Runs a line of bash to its end, in which `$command` is the command. */
  shell(line: string): Promise<Finished>;
}

/** The command on a migrated database without numbers, for all tests of a file. */
export function useCommand(): Commands {
  const commands = {} as Commands;
  const running = new Set<ChildProcess>();
  let drop: () => Promise<void>;

  function start(program: string, args: string[], input: string, given: Record<string, string>, cwd?: string): Running {
    const child = spawn(program, args, {
      cwd: cwd ?? commands.folder,
      env: {
        PATH: process.env.PATH ?? '',
        HOME: commands.folder,
        LOG_LEVEL: 'warn',
        command: `${process.execPath} ${join(commands.folder, 'main.js')}`,
        ...given,
      },
    });
    running.add(child);
    const out = { stdout: '', stderr: '' };
    child.stdout.setEncoding('utf8').on('data', (data) => (out.stdout += data));
    child.stderr.setEncoding('utf8').on('data', (data) => (out.stderr += data));
    child.stdin.on('error', () => {}).end(input);
    const finished = once(child, 'close').then(([code]) => {
      running.delete(child);
      const [database = ''] = /^database: .*\n/.exec(out.stderr) ?? [];
      return { code, ...out, stderr: out.stderr.slice(database.length), database };
    });
    return { child, finished };
  }

  beforeAll(async () => {
    const database = await createDatabase();
    drop = database.drop;
    const folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-command-'));
    // For bash: a path without spaces, wherever the checkout is.
    await symlink(MAIN, join(folder, 'main.js'));
    Object.assign(commands, {
      folder,
      databaseUrl: database.url,
      run: (args: string[], input = '') =>
        start(process.execPath, [MAIN, ...args], input, { DATABASE_URL: database.url }).finished,
      start: (args: string[], environment: Record<string, string> = {}, cwd?: string) =>
        start(process.execPath, [MAIN, ...args], '', environment, cwd),
      shell: (line: string) => start('bash', ['-c', line], '', { DATABASE_URL: database.url }).finished,
    });
  });
  afterAll(async () => {
    for (const child of running) child.kill('SIGKILL');
    await drop();
    await rm(commands.folder, { recursive: true, force: true });
  });
  return commands;
}
