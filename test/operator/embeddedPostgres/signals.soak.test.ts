/** Signals to `serve` at any moment of its start, its service and its stop leave no process behind. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { packageFolder } from '../../../src/packageFolder.js';
import { processesIn, sendSignal } from '../../support/process.js';
import { MAIN, SERVE, startServer } from '../../support/serverProcess.js';
import { makeFolder } from '../../support/temporaryFolder.js';
import { until } from '../../support/until.js';

const DEMO = [...SERVE, '--demo'];
const LINE = DEMO.map((word) => `'${word}'`).join(' ');
/** How often random signals are tried. */
const ROUNDS = process.env.RELEASE === '1' ? 20 : 10;

let folder: string;

beforeEach(async () => {
  folder = await makeFolder('branded-phone-numbers-signals-');
  await writeFile(join(folder, 'Makefile'), `start:\n\t${LINE}\n`);
});
afterEach(async () => {
  for (const pid of await processesIn(folder)) sendSignal(pid, 'SIGKILL');
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
        const child = start(...(way === 'to the group of make' ? ['make', 'start'] : DEMO));
        const exit = once(child, 'exit');
        for (const [delay, name] of signals) {
          await sleep(delay);
          if (child.pid) sendSignal(way === 'to the process' ? child.pid : -child.pid, name);
        }
        await exit;
        await expectNothingLeft();
      }),
      { numRuns: ROUNDS, endOnFailure: true },
    );
    const demo = join(packageFolder, 'demo/numbers.ndjson');
    await promisify(execFile)(process.execPath, [MAIN, 'import', demo], { cwd: folder });
  });
});

describe('serve', () => {
  it('stops when its terminal closes', async () => {
    const { child } = await serve(['script', '--quiet', '--command', LINE, '/dev/null']);
    child.kill('SIGKILL');
    await expectNothingLeft();
  });

  it('treats two equal signals at once, as make sends them, as one', async () => {
    const { child, exit } = await serve(DEMO);
    const begin = performance.now();
    child.kill('SIGTERM');
    await sleep(50);
    child.kill('SIGTERM');
    expect(await exit).toEqual([0, null]);
    expect(performance.now() - begin).toBeGreaterThan(2000);
  });

  it('exits at once after a second signal, with an immediate shutdown of PostgreSQL', async () => {
    const { child, exit } = await serve(DEMO, { DRAIN_SECONDS: '60' });
    // A stopped process, for which a fast shutdown has to wait.
    const [backend = 0] = await backendsOf(folder);
    process.kill(backend, 'SIGSTOP');
    child.kill('SIGTERM');
    await sleep(600);
    const begin = performance.now();
    child.kill('SIGTERM');
    expect(await exit).toEqual([null, 'SIGTERM']);
    expect(performance.now() - begin).toBeLessThan(10_000);
    await expectNothingLeft();
    expect(await readFile(join(folder, '.data/postgres/log'), 'utf8')).toContain('received immediate shutdown request');
  });
});

function start(...command: string[]): ChildProcess {
  const [file = '', ...args] = command;
  const env = { ...process.env, PORT: '0', HOME: folder, MAKEFLAGS: '' };
  return spawn(file, args, { cwd: folder, env, detached: true, stdio: 'ignore' });
}

/** Starts a command, and waits until its service is ready; `exit` is its exit status and signal. */
async function serve(command: string[], environment: Record<string, string> = {}) {
  const { child } = await startServer(command, { HOME: folder, ...environment }, { folder });
  return { child, exit: once(child, 'exit') };
}

/** Waits, since make may exit before the other processes of a signalled group. */
async function expectNothingLeft(): Promise<void> {
  await until(async () => (await processesIn(folder)).length === 0, 'no process is left', 20_000);
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
