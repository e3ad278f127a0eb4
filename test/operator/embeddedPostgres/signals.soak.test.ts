/** Signals to `serve` at any moment of its start, its service and its stop leave no process behind. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { packageFolder } from '../../../src/packageFolder.js';
import { listeningUrl } from '../../support/listeningUrl.js';
import { until } from '../../support/until.js';

const MAIN = join(packageFolder, 'dist/src/main.js');
const SERVE = `'${process.execPath}' '${MAIN}' serve --demo`;
/** How often random signals are tried. */
const ROUNDS = 20;

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-signals-'));
});
afterEach(async () => {
  for (const pid of await processesIn(folder)) process.kill(pid, 'SIGKILL');
  await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
});

describe('signals at random times', () => {
  const signal = fc.constantFrom('SIGINT' as const, 'SIGTERM' as const, 'SIGHUP' as const);
  const round = fc.record({
    /** Ctrl-C signals the whole group, and make also forwards SIGTERM to its child. */
    way: fc.constantFrom('to the process', 'to its group', 'to the group of make'),
    isFirstStart: fc.boolean(),
    signals: fc.array(fc.tuple(fc.integer({ min: 0, max: 3000 }), signal), { minLength: 1, maxLength: 3 }),
  });

  it('leave no process behind, and usable data', { timeout: ROUNDS * 60_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(round, async ({ way, isFirstStart, signals }) => {
        if (isFirstStart) await rm(join(folder, '.data'), { recursive: true, force: true });
        const child = way === 'to the group of make' ? await startWithMake() : start(SERVE);
        const exit = once(child, 'exit');
        for (const [delay, name] of signals) {
          await sleep(delay);
          send(child, name, way === 'to the process');
        }
        await exit;
        await expectNothingLeft();
      }),
      { numRuns: ROUNDS, endOnFailure: true },
    );
    const demo = join(packageFolder, 'demo/numbers.ndjson');
    const { code, stderr } = await finished(start(`'${process.execPath}' '${MAIN}' import '${demo}'`));
    expect(code, stderr()).toBe(0);
  });
});

describe('serve', () => {
  it('stops when its terminal closes', async () => {
    const terminal = start(`script --quiet --command "${SERVE}" /dev/null`);
    await listeningUrl(terminal.stdout);
    terminal.kill('SIGKILL');
    await until(async () => (await processesIn(folder)).length === 0, 'no process is left', 20_000);
  });

  it('treats two equal signals at once, as make sends them, as one', async () => {
    const child = start(SERVE, { DRAIN_SECONDS: '2' });
    await listeningUrl(child.stdout);
    const begin = performance.now();
    child.kill('SIGTERM');
    await sleep(50);
    child.kill('SIGTERM');
    const { code } = await finished(child);
    expect(code).toBe(0);
    expect(performance.now() - begin).toBeGreaterThan(2000);
  });

  it('exits at once after a second signal, with an immediate shutdown of PostgreSQL', async () => {
    const child = start(SERVE, { DRAIN_SECONDS: '60' });
    await listeningUrl(child.stdout);
    // A stopped process, for which a fast shutdown has to wait.
    const [backend = 0] = await backendsOf(folder);
    process.kill(backend, 'SIGSTOP');
    child.kill('SIGTERM');
    await sleep(600);
    const begin = performance.now();
    child.kill('SIGTERM');
    const { code } = await finished(child);
    expect(code).toBe(143);
    expect(performance.now() - begin).toBeLessThan(10_000);
    await expectNothingLeft();
    expect(await readFile(join(folder, '.data/postgres/log'), 'utf8')).toContain('received immediate shutdown request');
  });
});

function start(command: string, environment: Record<string, string> = {}) {
  return spawn('sh', ['-c', `exec ${command}`], {
    cwd: folder,
    env: { ...process.env, PORT: '0', HOME: folder, MAKEFLAGS: '', ...environment },
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

async function startWithMake() {
  await writeFile(join(folder, 'Makefile'), `start:\n\t${SERVE}\n`);
  return start('make start');
}

function send(child: ChildProcess, signal: NodeJS.Signals, isForProcess: boolean): void {
  try {
    if (child.pid) process.kill(isForProcess ? child.pid : -child.pid, signal);
  } catch {
    // The process has ended.
  }
}

async function finished(child: ChildProcess) {
  let stderr = '';
  child.stdout?.resume();
  child.stderr?.on('data', (data) => (stderr += data));
  if (child.exitCode === null && child.signalCode === null) await once(child, 'close');
  return { code: child.exitCode, stderr: () => stderr };
}

/** Waits, since make may exit before the other processes of a signalled group. */
async function expectNothingLeft(): Promise<void> {
  await until(async () => (await processesIn(folder)).length === 0, 'no process is left', 15_000);
}

/** Returns the processes with this folder as their working folder or in their command line. */
async function processesIn(parent: string): Promise<number[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  const isInside = await Promise.all(
    pids.map(async (pid) => {
      const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => '');
      const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
      return cwd.startsWith(parent) || command.includes(parent);
    }),
  );
  return pids.filter((_pid, index) => isInside[index]);
}

async function backendsOf(parent: string): Promise<number[]> {
  const titles = await Promise.all(
    (await processesIn(parent)).map(async (pid) => ({
      pid,
      title: await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => ''),
    })),
  );
  return titles.filter(({ title }) => /^postgres: postgres branded_phone_numbers /.test(title)).map(({ pid }) => pid);
}
