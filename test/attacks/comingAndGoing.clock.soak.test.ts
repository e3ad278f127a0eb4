/** Instances that start and stop at random while clients ask them, as an autoscaler or a rolling update makes them. */
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { createDatabase } from '../database.js';
import { mostInASecond } from '../mostInASecond.js';
import { type Answer, Client, countByStatus, type Instance, startInstance, writeNumbers } from './instances.js';

const SEED = 26_1121;
const LIMIT = 10;
/** One turn of load. A slow machine takes several until this many instances have come and gone. */
const TURN_SECONDS = 9;
const LEAST_CHANGES = 4;
/** Instances that may run at once, and the seconds for which each goes on serving after SIGTERM. */
const PLACES = 3;
const DRAIN_SECONDS = 1;

let databaseUrl: string;
let drop: () => Promise<void>;
const running: Instance[] = [];
let clients: Client[] = [];

beforeEach(async () => {
  clients = Array.from({ length: 4 }, (_, i) => new Client(`203.0.113.${i + 1}`));
  ({ url: databaseUrl, drop } = await createDatabase());
  await writeNumbers(databaseUrl);
});
afterEach(async () => {
  for (const client of clients) client.close();
  for (const { child } of running.splice(0)) child.kill('SIGKILL');
  await drop();
});

const start = async () => {
  const settings = { DATABASE_URL: databaseUrl, DRAIN_SECONDS: String(DRAIN_SECONDS) };
  const instance = await startInstance(settings);
  running.push(instance);
  return instance;
};

it('instances that come and go under load cut no answer, and together never exceed the limit', async () => {
  const lives = fc.sample(fc.integer({ min: 300, max: 2500 }), { seed: SEED, numRuns: 100 });
  const choices = fc.sample(fc.nat(), { seed: SEED, numRuns: 1000 });
  const codes: (number | null)[] = [];
  let isOver = false;
  async function comeAndGo(): Promise<void> {
    while (!isOver) {
      const instance = await start();
      await sleep(lives.pop());
      codes.push(await instance.stop());
      running.splice(running.indexOf(instance), 1);
    }
  }
  // One instance stays; it counts for the limit together with those that come and go.
  const { body: page } = await new Client('203.0.113.99').ask(await start());
  const places = Array.from({ length: PLACES - 1 }, comeAndGo);
  const anyOne = (i: number) => running[(choices[i % choices.length] ?? 0) % running.length];
  const answers: Answer[][] = clients.map(() => []);
  let seconds = 0;
  while (codes.length < LEAST_CHANGES) {
    const turn = await Promise.all(
      clients.map((client, i) => client.askFor(TURN_SECONDS, i === 0 ? 60 : 5, (j) => anyOne(j * clients.length + i))),
    );
    for (const [i, more] of turn.entries()) answers[i]?.push(...more);
    seconds += TURN_SECONDS;
  }
  isOver = true;
  await Promise.all(places);

  const all = answers.flat();
  const counts = countByStatus(all);
  const alone = new Set(all.map(({ instance }) => instance).filter(({ countedAlone }) => countedAlone)).size;
  console.log(`${codes.length} instances came and went, ${alone} counted alone: ${JSON.stringify(counts)}`);
  expect(codes.length).toBeGreaterThanOrEqual(LEAST_CHANGES);
  expect(codes).toEqual(codes.map(() => 0));
  expect(Object.keys(counts).filter((status) => !['200', '429', 'none'].includes(status))).toEqual([]);
  // After its drain an instance takes no requests; a load balancer has seen it unready by then.
  const afterDrain = ({ instance, came }: Answer) => came - (instance.stopSentAt ?? came) >= DRAIN_SECONDS * 1000;
  expect(all.filter((answer) => answer.status === undefined && !afterDrain(answer))).toEqual([]);
  expect(all.filter(({ status, isWhole }) => status !== undefined && !isWhole)).toEqual([]);
  expect(all.filter(({ status, body }) => status === 200 && body !== page)).toEqual([]);
  const most = LIMIT * (1 + Math.min(alone, PLACES));
  for (const each of answers) expect(mostInASecond(each)).toBeLessThanOrEqual(most);
  // The greedy client gets its full limit, whichever instances are up.
  expect(countByStatus(answers[0] ?? [])[200]).toBeGreaterThanOrEqual(0.8 * LIMIT * seconds);
}, 120_000);
