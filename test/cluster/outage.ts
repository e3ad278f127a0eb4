/** How instances limit clients while the Redis that they share has an outage. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect } from 'vitest';
import type { Service } from '../../src/service/server.js';
import { useDatabase } from '../support/database.js';
import { useServiceOn } from '../support/service.js';
import { mostInASecond, statusesOf, type TimedResponse } from '../support/timedResponses.js';

const PATH = '/v1/brandedPhoneNumbers';
const CLIENTS = 30;
const LIMIT = 10;
/** Requests that a client sends at once: more than all instances together let pass if each counts on its own. */
const BURST = 33;
const PAUSE_MS = 120;
/** The outage is over after this time, in which each client sends a burst, if no client exceeded its limit. */
const CALM_MS = CLIENTS * PAUSE_MS;
const GIVE_UP_MS = 20_000;

const instances: Service[] = [];
let database: ReturnType<typeof useDatabase>;
let addresses = 0;

/** Creates a database for all tests of a file; each has its own instances. */
export function useInstances(): void {
  database = useDatabase();
  afterEach(() => void instances.splice(0));
}

/** Returns the address of a new client. */
const newClient = () => `203.0.113.${++addresses}`;

export async function start(count: number, environment: Record<string, string>): Promise<void> {
  const settings = { RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1', ...environment };
  for (let i = 0; i < count; i++) instances.push(await useServiceOn(database.url, settings));
}

async function request(instance: Service | undefined, client: string): Promise<TimedResponse> {
  const sentAt = performance.now();
  const response = await fetch(`${instance?.url}${PATH}`, { headers: { 'X-Forwarded-For': client } });
  await response.arrayBuffer();
  return { status: response.status, sentAt, endedAt: performance.now() };
}

/** Sends `count` requests of a client at once, to all instances in turn. */
const together = (client: string, count: number) =>
  Promise.all(Array.from({ length: count }, (_, i) => request(instances[i % instances.length], client)));

interface Outage {
  statuses: TimedResponse['status'][];
  /** The maximum number of requests of a client that passed in a second. */
  most: number;
  /** From the beginning of the outage until clients exceeded their limit for the last time. */
  seconds: number;
}

/** Expects that no request fails, that each instance limits clients meanwhile, and that all share the limit again in time. */
export async function expectSharedAgain(fault: string, limitSeconds: number, begin: () => unknown): Promise<void> {
  const { statuses, most, seconds } = await outage(begin);
  console.log(`${fault}: at most ${most} in a second, shared again after ${seconds.toFixed(1)} s`);
  expect(statuses).toEqual([200, 429]);
  expect(most).toBeLessThanOrEqual(instances.length * LIMIT);
  expect(seconds).toBeLessThanOrEqual(limitSeconds);
}

/** Thirty clients in turn send bursts to all instances, from a second before `begin` until the limit is shared again. */
export async function outage(begin: () => unknown = () => {}): Promise<Outage> {
  const clients = Array.from({ length: CLIENTS }, newClient);
  const responses = clients.map((): TimedResponse[] => []);
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

/** Returns the first time after `began` that is followed by CALM_MS without a client that exceeds its limit. */
function calmFrom(began: number, responses: TimedResponse[][]): number {
  const tooMany = responses.flatMap((ofClient) => {
    const passed = ofClient.filter(({ status }) => status === 200).sort((one, other) => one.sentAt - other.sentAt);
    return passed.flatMap(({ sentAt: from }) => {
      const inASecond = passed.filter(({ sentAt, endedAt }) => sentAt >= from && endedAt < from + 1000);
      const to = inASecond.map(({ endedAt }) => endedAt).sort((one, other) => one - other)[LIMIT];
      return to === undefined ? [] : [{ from, to }];
    });
  });
  let over = began;
  for (const { from, to } of tooMany.sort((one, other) => one.from - other.from)) {
    if (from < over + CALM_MS) over = Math.max(over, to);
  }
  return over;
}
