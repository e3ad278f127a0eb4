/** Instances of the service that share a rate limit, and clients of them. */
import { afterEach, beforeAll } from 'vitest';
import type { Service } from '../../src/service/server.js';
import { useDatabase } from './database.js';
import { useServiceOn } from './service.js';
import type { TimedResponse } from './timedResponses.js';

const PATH = '/v1/brandedPhoneNumbers';

export const instances: Service[] = [];
let databaseUrl: string;
let clients = 0;

/** Creates a database for all tests of a file; each has its own instances. */
export function useInstances(): void {
  const database = useDatabase();
  beforeAll(() => {
    databaseUrl = database.url;
  });
  afterEach(() => void instances.splice(0));
}

/** Returns the address of a new client. */
export const newClient = () => `203.0.113.${++clients}`;

export async function start(count: number, environment: Record<string, string>): Promise<void> {
  const settings = { RATE_LIMIT_PER_SECOND: '10', TRUST_PROXY: '1', ...environment };
  for (let i = 0; i < count; i++) instances.push(await useServiceOn(databaseUrl, settings));
}

async function request(instance: Service | undefined, client: string): Promise<TimedResponse> {
  const sentAt = performance.now();
  const response = await fetch(`${instance?.url}${PATH}`, { headers: { 'X-Forwarded-For': client } });
  await response.arrayBuffer();
  return { status: response.status, sentAt, endedAt: performance.now() };
}

/** Sends `count` requests of a client at once, to all instances in turn. */
export const together = (client: string, count: number) =>
  Promise.all(Array.from({ length: count }, (_, i) => request(instances[i % instances.length], client)));
