/** A command that a signal ends. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { useCommand } from '../../support/command.js';
import { ndjson } from '../../support/ndjson.js';
import { numberWith } from '../../support/numbers.js';
import { endProcess, sendSignal } from '../../support/process.js';
import { MAIN } from '../../support/serverProcess.js';
import { until } from '../../support/until.js';

const command = useCommand();

/** Starts a command, for this test; `printed()` is its standard error so far. */
function start(...[program = '', ...args]: string[]) {
  const env = { PATH: process.env.PATH, DATABASE_URL: `${command.databaseUrl}?application_name=signaled` };
  const child = spawn(program, args, { cwd: command.folder, env, stdio: ['pipe', 'ignore', 'pipe'] });
  onTestFinished(() => endProcess(child));
  let printed = '';
  child.stderr.setEncoding('utf8').on('data', (text) => (printed += text));
  return { child, exit: once(child, 'exit'), printed: () => printed };
}

/** Makes a named pipe. Returns its other end, which neither reads nor writes by itself. */
function makePipe(name: string) {
  execFileSync('mkfifo', [join(command.folder, name)]);
  return open(join(command.folder, name), 'r+');
}

describe('a command beside a named pipe', () => {
  it('ends by the signal while the reader of the pipe hangs', async () => {
    const numbers = Array.from({ length: 600 }, (_, i) =>
      numberWith({ phoneNumber: `+1${1000 + i}`, internalName: 'x'.repeat(255) }),
    );
    // More than a pipe holds.
    expect(await command.run(['import', '-'], ndjson(numbers))).toMatchObject({ code: 0 });
    const reader = await makePipe('output');
    const { child, exit, printed } = start(process.execPath, MAIN, 'export', 'output');
    await reader.read();
    child.kill('SIGTERM');
    expect(await exit).toEqual([null, 'SIGTERM']);
    expect(printed()).toMatch(/stopped by SIGTERM\n$/);
    await reader.close();
  });

  it('can be ended by a signal after it has failed, while the writer of the pipe hangs', async () => {
    const writer = await makePipe('input');
    const { child, exit, printed } = start(process.execPath, MAIN, 'import', 'input');
    // More than a pipe holds: once it is written, the command reads.
    await writer.write('\n'.repeat(200_000));
    const terminate = () =>
      command.sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'signaled%'`;
    await until(async () => (await terminate()) && printed().includes("can't be reached"), 'it fails');
    await until(() => !child.kill('SIGINT'), 'it ends');
    expect(await exit).toEqual([null, 'SIGINT']);
    await writer.close();
  });
});

describe.skipIf(process.platform !== 'linux' || process.getuid?.() !== 0)('process 1 of a container', () => {
  it("exits with the signal's status, since Linux ignores the default action", async () => {
    const { child, exit, printed } = start('unshare', '--pid', '--fork', process.execPath, MAIN, 'import', '-');
    await until(() => printed().includes('database: '), 'it runs');
    sendSignal(Number(readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8')), 'SIGTERM');
    expect(await exit).toEqual([143, null]);
  });
});
