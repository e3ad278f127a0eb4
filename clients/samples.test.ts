/**
 * The sample in each client's README, run word for word with the package that `make clients` made, against a service that
 * answers 503 and 429 now and then.
 */
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { sample } from './live/samples.js';

const execute = promisify(execFile);

/** Ends what it runs before the test's own time is over, so that nothing is left behind. */
const run = (program: string, options: string[], { cwd }: { cwd: string }) =>
  execute(program, options, { cwd, timeout: 115_000 });

const { SERVICE_URL = '', FAILING_URL = '', CACHE = '', CLIENTS = '' } = process.env;

/** What every sample prints: the numbers with an entry at AT&T whose overall status is approved. */
async function expected(): Promise<string> {
  const query = 'size=100&carrier=AT%26T&status=approved';
  const answer = await fetch(`${SERVICE_URL}/v1/brandedPhoneNumbers?${query}`);
  const { items } = (await answer.json()) as { items: { phoneNumber: string }[] };
  expect(items).toHaveLength(56);
  return items.map(({ phoneNumber }) => `${phoneNumber} approved\n`).join('');
}

/** How a user runs a file in the language, and where its package is installed. */
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

/** Runs the sample of a client with its package, asking the service at this address below the one that fails. */
async function runSample(client: string, steps: string): Promise<{ stdout: string }> {
  const how = runs[client];
  if (!how) throw new Error(`nobody knows how to run ${client}`);
  const folder = join(CACHE, 'installed', client);
  await mkdir(join(folder, 'sample'), { recursive: true });
  await writeFile(join(folder, how.file), sample(client, how.language, `${FAILING_URL}/sample-${client}/${steps}`));
  return how.run(folder);
}

describe('The sample of the README prints every number that matches', () => {
  it.each(CLIENTS.split(' '))('in the %s client', async (client) => {
    expect((await runSample(client, 'size=20,503-1,ok,429-1,503-1,ok')).stdout).toBe(await expected());
  });
});

describe.concurrent('The sample of the README waits a minute where it should wait an hour, and 30 seconds for an answer', () => {
  it.each(CLIENTS.split(' '))('in the %s client', async (client) => {
    const started = performance.now();
    const why = /[Tt]ime(d )?out|deadline exceeded|within 30 seconds/;
    await expect(runSample(client, '503-3600,silent')).rejects.toThrow(why);
    const took = performance.now() - started;
    expect(took).toBeGreaterThan(89_500);
    expect(took).toBeLessThan(115_000);
  });
});
