/** Two `serve` without DATABASE_URL in one folder: they share its embedded PostgreSQL, and either may end first. */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { mostInASecond } from '../mostInASecond.js';
import { numberWith } from '../numbers.js';
import { type Answer, Client, expectServed, type Instance, startInstance } from './instances.js';

const LIMIT = 10;
const ADDED = '+14155550199';

let folder: string;
const running: Instance[] = [];
let greedy: Client;
let modest: Client;

beforeEach(async () => {
  greedy = new Client('203.0.113.1');
  modest = new Client('203.0.113.2');
  folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-two-'));
});
afterEach(async () => {
  for (const client of [greedy, modest]) client.close();
  for (const { child } of running.splice(0)) child.kill('SIGKILL');
  const pid = await postmasterPid();
  if (pid) process.kill(pid, 'SIGQUIT');
  await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
});

async function start(): Promise<Instance> {
  const instance = await startInstance({ DRAIN_SECONDS: '0' }, folder);
  running.push(instance);
  return instance;
}

async function postmasterPid(): Promise<number | undefined> {
  const file = join(folder, '.data', 'postgres', 'data', 'postmaster.pid');
  return Number((await readFile(file, 'utf8').catch(() => '')).split('\n')[0]) || undefined;
}

/** Imports one number, by the command in the same folder. */
async function importOne(phoneNumber: string): Promise<void> {
  const importing = promisify(execFile)(process.execPath, [join(packageFolder, 'dist/src/main.js'), 'import', '-'], {
    cwd: folder,
  });
  importing.child.stdin?.end(JSON.stringify(numberWith({ phoneNumber })));
  await importing;
}

/** What the list of an instance shows. */
async function numbersOf(instance: Instance): Promise<string[]> {
  const { body } = await modest.ask(instance);
  return JSON.parse(body).items.map((item: { phoneNumber: string }) => item.phoneNumber);
}

it('two services in one folder share the numbers and the limit, and each outlives the other', async () => {
  const [first, second] = (await Promise.all([start(), start()])) as [Instance, Instance];
  await importOne(ADDED);
  expect([await numbersOf(first), await numbersOf(second)]).toEqual([[ADDED], [ADDED]]);
  const burst = await Promise.all(Array.from({ length: 30 }, (_, i) => greedy.ask(i % 2 ? first : second)));
  expect(mostInASecond(burst)).toBe(LIMIT);

  // The first is stopped gracefully, which no client of the second notices.
  const asking = modest.askFor(2, 5, () => second);
  await sleep(500);
  expect(await first.stop()).toBe(0);
  const answers: Answer[] = await asking;
  expectServed(answers);

  // Another joins, and the one before it is killed.
  const third = await start();
  const askingThird = modest.askFor(2, 5, () => third);
  await sleep(500);
  second.child.kill('SIGKILL');
  const answersOfThird = await askingThird;
  expectServed(answersOfThird);
  await importOne('+14155550200');

  // The last one stops PostgreSQL as well; nothing of what was written is lost.
  expect(await third.stop()).toBe(0);
  expect(await postmasterPid()).toBeUndefined();
  const fourth = await start();
  expect(await numbersOf(fourth)).toEqual([ADDED, '+14155550200']);
  expect(await fourth.stop()).toBe(0);
}, 60_000);
