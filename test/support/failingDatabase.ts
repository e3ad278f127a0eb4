/** A service with a proxy before its database that can fail like a network, and the responses it may send then. */
import { beforeAll, beforeEach, expect } from 'vitest';
import type { Service } from '../../src/service/server.js';
import { useDatabase } from './database.js';
import { useServiceOn } from './service.js';
import type { TimedResponse } from './timedResponses.js';
import { type ToxicProxy, useProxy } from './toxicProxy.js';
import { until } from './until.js';

const PATH = '/v1/brandedPhoneNumbers';
/** The deadline of a request. */
export const DEADLINE_MS = 2000;
/** The time that a busy machine may add; with DEADLINE_MS, less than a service's default deadline. */
const SLACK_MS = 2500;

export let databaseUrl: string;
export let proxy: ToxicProxy;
let service: Service;

/** Creates a database for all tests of a file, and a proxy for each. */
export function useFailingDatabase(): void {
  const database = useDatabase();
  beforeAll(() => {
    databaseUrl = database.url;
  });
  beforeEach(async () => {
    proxy = await useProxy(databaseUrl);
  });
}

/** Starts the service of a test. */
export async function start(url: string, environment: Record<string, string> = {}): Promise<void> {
  const LOG_LEVEL = process.env.FAULT_LOG ?? 'silent';
  service = await useServiceOn(url, { LOG_LEVEL, REQUEST_TIMEOUT_SECONDS: String(DEADLINE_MS / 1000), ...environment });
  expect((await ask()).status).toBe(200);
}

export interface PageResponse extends TimedResponse {
  type: string | undefined;
  retryAfter: string | null;
}

export async function ask(): Promise<PageResponse> {
  const sentAt = performance.now();
  const response = await fetch(`${service.url}${PATH}`);
  const { type } = (await response.json()) as { type?: string };
  return {
    status: response.status,
    sentAt,
    endedAt: performance.now(),
    type,
    retryAfter: response.headers.get('Retry-After'),
  };
}

export const askTogether = (count: number) => Promise.all(Array.from({ length: count }, ask));

export async function ready(): Promise<TimedResponse> {
  const sentAt = performance.now();
  const { status } = await fetch(`${service.url}/readyz`);
  return { status, sentAt, endedAt: performance.now() };
}

/** Fails unless the response is the 503 that these faults may cause, within the deadline. */
export function expectUnavailable({ status, sentAt, endedAt, type, retryAfter }: PageResponse): void {
  expect([status, type, retryAfter]).toEqual([503, '/problems/unavailable', '1']);
  expect(endedAt - sentAt).toBeLessThan(DEADLINE_MS + SLACK_MS);
}

/** Waits until requests succeed again. */
export const recovery = () => until(async () => (await ask()).status === 200, 'requests succeed again');
