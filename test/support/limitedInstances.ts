/** Instances of the service that share a rate limit, and what clients get from them. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeAll } from 'vitest';
import type { Service } from '../../src/service/server.js';
import { useDatabase } from './database.js';
import { listenOn, metricOf, metricsOf } from './listening.js';

const PATH = '/v1/brandedPhoneNumbers';

export interface Outcome {
  status: number;
  /** When it was requested and when it came, in milliseconds. */
  sent: number;
  came: number;
}

export const instances: Service[] = [];
/** The database of the instances. */
export let databaseUrl: string;
let clients = 0;

/** A database for all tests of a file; the instances that a test has started are closed. */
export function useInstances(): void {
  const database = useDatabase();
  beforeAll(() => {
    databaseUrl = database.url;
  });
  afterEach(async () => {
    await Promise.all(instances.splice(0).map((instance) => instance.close()));
  });
}

/** A client that no instance has seen yet. */
export const newClient = () => `203.0.113.${++clients}`;

export async function start(count: number, environment: Record<string, string>, url = databaseUrl): Promise<void> {
  const settings = { RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1', ...environment };
  for (let i = 0; i < count; i++) instances.push(await listenOn(url, settings));
}

export async function ask(instance: Service | undefined, client: string): Promise<Outcome> {
  const sent = performance.now();
  const response = await fetch(`${instance?.url}${PATH}`, { headers: { 'X-Forwarded-For': client } });
  await response.arrayBuffer();
  return { status: response.status, sent, came: performance.now() };
}

/** The client asks all instances in turn as fast as `rate` a second, for `seconds`. */
export async function flood(client: string, seconds: number, rate = 100): Promise<Outcome[]> {
  const outcomes: Promise<Outcome>[] = [];
  const end = performance.now() + seconds * 1000;
  for (let i = 0; performance.now() < end; i++) {
    outcomes.push(ask(instances[i % instances.length], client));
    await sleep(1000 / rate);
  }
  return Promise.all(outcomes);
}

/**
 * Whether the first instance decided within 250 ms. A machine that stalls delays the decisions under way; waiting for the
 * store would delay many more.
 */
export async function decidesInTime(): Promise<boolean> {
  const text = await metricsOf(instances[0] as Service);
  const sum = (pattern: RegExp) => [...text.matchAll(pattern)].reduce((total, [, count]) => total + Number(count), 0);
  const inTime = sum(/^rate_limit_decision_seconds_bucket{le="0.25",[^}]*} (\d+)$/gm);
  const all = sum(/^rate_limit_decision_seconds_count{[^}]*} (\d+)$/gm);
  return inTime > 0 && all - inTime <= Math.max(5, all / 5);
}

export const statusesOf = (outcomes: Outcome[]) => [...new Set(outcomes.map(({ status }) => status))].sort();
export const countOf = (outcomes: Outcome[], status: number) =>
  outcomes.filter((outcome) => outcome.status === status).length;

/** Of the first instance. */
export const metric = (name: string) => metricOf(instances[0] as Service, name);

/** `count` requests of a client at once, over all instances in turn. */
export const together = (client: string, count: number) =>
  Promise.all(Array.from({ length: count }, (_, i) => ask(instances[i % instances.length], client)));
