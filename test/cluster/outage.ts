/** What clients get from three instances while the Redis of the limit has an outage. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { instances, newClient, type Outcome, statusesOf, together } from '../support/limitedInstances.js';
import { mostInASecond } from '../support/mostInASecond.js';

const CLIENTS = 30;
const LIMIT = 10;
/** One client after the other sends more requests at once than all instances would let pass on their own. */
const BURST = 33;
const PAUSE_MS = 120;
/** The outage is over when each client has had no more than its limit. */
const CALM_MS = CLIENTS * PAUSE_MS;
const GIVE_UP_MS = 20_000;

interface Outage {
  statuses: number[];
  /** The most requests of a client that passed in a second. */
  most: number;
  /** From the outage's beginning until no client got more than its limit any more. */
  seconds: number;
}

/** Expects that no request fails, each instance keeps the limit on its own, and all share it again in time. */
export async function expectSharedAgain(fault: string, limitSeconds: number, begin: () => unknown): Promise<void> {
  const { statuses, most, seconds } = await outage(begin);
  console.log(`${fault}: at most ${most} in a second, shared again after ${seconds.toFixed(1)} s`);
  expect(statuses).toEqual([200, 429]);
  expect(most).toBeLessThanOrEqual(instances.length * LIMIT);
  expect(seconds).toBeLessThanOrEqual(limitSeconds);
}

/** Thirty clients in turn ask all instances, from a second before `begin` until the limit is shared again. */
export async function outage(begin: () => unknown = () => {}): Promise<Outage> {
  const clients = Array.from({ length: CLIENTS }, newClient);
  const responses = clients.map((): Outcome[] => []);
  const open: Promise<unknown>[] = [];
  const turns = setInterval(() => {
    const i = open.length % CLIENTS;
    open.push(together(clients[i] as string, BURST).then((all) => responses[i]?.push(...all)));
  }, PAUSE_MS);
  let began = 0;
  let over = 0;
  try {
    await sleep(1000);
    await begin();
    over = began = performance.now();
    while (performance.now() < Math.min(over + CALM_MS, began + GIVE_UP_MS)) {
      await sleep(over + CALM_MS - performance.now());
      await Promise.all(open);
      over = calmFrom(began, responses);
    }
  } finally {
    clearInterval(turns);
  }
  await Promise.all(open);
  return {
    statuses: statusesOf(responses.flat()),
    most: Math.max(...responses.map(mostInASecond)),
    seconds: (over - began) / 1000,
  };
}

/** The first moment after `began` from which on no client got more than its limit in a second, for as long as it has to be. */
function calmFrom(began: number, responses: Outcome[][]): number {
  const tooMany = responses.flatMap((ofClient) => {
    const passed = ofClient.filter(({ status }) => status === 200).sort((one, other) => one.sent - other.sent);
    return passed.flatMap(({ sent: from }) => {
      const inASecond = passed.filter(({ sent, came }) => sent >= from && came < from + 1000);
      const to = inASecond.map(({ came }) => came).sort((one, other) => one - other)[LIMIT];
      return to === undefined ? [] : [{ from, to }];
    });
  });
  let over = began;
  for (const { from, to } of tooMany.sort((one, other) => one.from - other.from)) {
    if (from < over + CALM_MS) over = Math.max(over, to);
  }
  return over;
}
