/**
 * Runs the sample program of each client's README, with the package that `make clients` built, against a service that
 * sometimes responds with 503 and 429.
 */
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { sample } from './live/samples.js';

const execute = promisify(execFile);

/** Runs a program. Kills it before the test times out, so that no process is left. */
const run = (program: string, options: string[], { cwd }: { cwd: string }) =>
  execute(program, options, { cwd, timeout: 115_000 });

const { SERVICE_URL = '', FAILING_URL = '', CACHE = '', CLIENTS = '' } = process.env;

/** Returns the output that every sample must print: the approved numbers with a carrier status of AT&T. */
async function expected(): Promise<string> {
  const query = 'size=100&carrier=AT%26T&status=approved';
  const response = await fetch(`${SERVICE_URL}/v1/brandedPhoneNumbers?${query}`);
  const { items } = (await response.json()) as { items: { phoneNumber: string }[] };
  expect(items).toHaveLength(56);
  return items.map(({ phoneNumber }) => `${phoneNumber} approved\n`).join('');
}

/**
 * For each client: the language of its sample, the file that it is saved as, and the command that runs it in a folder.
 */
const runs: Record<string, { language: string; file: string; run(folder: string): Promise<{ stdout: string }> }> = {
  typescript: {
    language: 'js',
    file: 'sample.mjs',
    run: (folder) => run('node', ['sample.mjs'], { cwd: folder }),
  },
  python: {
    language: 'python',
    file: 'sample.py',
    run: (folder) => run(join(folder, 'bin', 'python'), ['sample.py'], { cwd: folder }),
  },
  java: {
    language: 'java',
    file: 'Sample.java',
    run: (folder) => run('java', ['-cp', join(folder, '*'), 'Sample.java'], { cwd: folder }),
  },
  go: {
    language: 'go',
    file: 'sample/main.go',
    run: (folder) => run('go', ['run', './sample'], { cwd: folder }),
  },
};

/** Runs the sample of a client against the failing proxy with these steps (live/failing.ts). */
async function runSample(client: string, steps: string): Promise<{ stdout: string }> {
  const runner = runs[client];
  if (!runner) throw new Error(`unknown client: ${client}`);
  const folder = join(CACHE, 'installed', client);
  await mkdir(join(folder, 'sample'), { recursive: true });
  await writeFile(
    join(folder, runner.file),
    sample(client, runner.language, `${FAILING_URL}/sample-${client}/${steps}`),
  );
  return runner.run(folder);
}

describe('The sample of the README prints every number that matches', () => {
  it.each(CLIENTS.split(' '))('in the %s client', async (client) => {
    expect((await runSample(client, 'size=20,503-1,ok,429-1,503-1,ok')).stdout).toBe(await expected());
  });
});

describe.concurrent('The sample of the README waits a minute if Retry-After is an hour, and 30 seconds for a response', () => {
  it.each(CLIENTS.split(' '))('in the %s client', async (client) => {
    const started = performance.now();
    const timeoutMessage = /[Tt]ime(d )?out|deadline exceeded|within 30 seconds/;
    await expect(runSample(client, '503-3600,silent')).rejects.toThrow(timeoutMessage);
    const elapsed = performance.now() - started;
    expect(elapsed).toBeGreaterThan(89_500);
    expect(elapsed).toBeLessThan(115_000);
  });
});
