/** Ten times as many requests as a service can serve, and how clients that send few requests are served meanwhile. */
import { spawn } from 'node:child_process';
import { Agent, get, type RequestOptions } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FloodResults } from './flood.js';

/** Connections while the capacity is measured. */
const CAPACITY_CONNECTIONS = 32;
/** Connections of the flood: most of what MAX_CONNECTIONS allows. */
const FLOOD_CONNECTIONS = 1500;
/** Clients that send few requests, each on its own connection. */
const CLIENTS = 20;
/** How often each of these clients sends a request. */
const CLIENT_INTERVAL_MS = 4000;
const HEALTH_INTERVAL_MS = 250;
/** How long a client retries. */
const RETRY_MS = 5000;

export interface Overload {
  /** 200 responses per second without the flood. */
  capacity: number;
  flood: FloodResults;
  /** Connections of the flood. */
  connections: number;
  /** Requests of the clients that send few. */
  requests: number;
  /** How many of these requests were served without a retry. */
  servedAtOnce: number;
  /** How many of these requests were served within `RETRY_MS`, including retries after `Retry-After`. */
  servedInTime: number;
  /** Responses to these clients, and to health checks, that were neither correct nor a 503 with `Retry-After`. */
  wrong: number;
  /** Milliseconds of the slowest request to `/healthz`, each on a new connection. */
  slowestHealth: number;
  /** Milliseconds from the end of the flood to the first 200 response. */
  recovery: number;
}

/** Floods `path` of the service at `url`. */
export async function overload(url: string, path: string, seconds: number): Promise<Overload> {
  const address = `${url}${path}`;
  const expected = (await request(address)).body;
  const capacitySeconds = 5;
  await flood(address, Number.MAX_SAFE_INTEGER, CAPACITY_CONNECTIONS, 2);
  const { statuses } = await flood(address, Number.MAX_SAFE_INTEGER, CAPACITY_CONNECTIONS, capacitySeconds);
  const capacity = (statuses[200] ?? 0) / capacitySeconds;
  const counts = { requests: 0, servedAtOnce: 0, servedInTime: 0, wrong: 0, slowestHealth: 0, recovery: 0 };
  let isOver = false;
  const flooding = flood(address, 10 * capacity, FLOOD_CONNECTIONS, seconds).finally(() => {
    isOver = true;
  });

  async function requestWithRetries(agent: Agent, client: number): Promise<void> {
    const end = performance.now() + RETRY_MS;
    const options = { agent, headers: { 'X-Forwarded-For': `203.0.113.${client}` } };
    counts.requests++;
    for (let tries = 1; performance.now() < end; tries++) {
      const { status, body, retryAfter } = await request(address, options);
      if (status === 200) {
        const isInTime = performance.now() < end;
        if (body !== expected) counts.wrong++;
        else if (isInTime) counts.servedInTime++;
        if (tries === 1 && isInTime) counts.servedAtOnce++;
        return;
      }
      if (status !== 503 || !retryAfter) counts.wrong++;
      await sleep(retryAfter * 1000);
    }
  }
  async function checkHealth(): Promise<void> {
    while (!isOver) {
      const start = performance.now();
      const { status } = await request(`${url}/healthz`, { agent: false });
      if (status !== 200) counts.wrong++;
      counts.slowestHealth = Math.max(counts.slowestHealth, performance.now() - start);
      await sleep(HEALTH_INTERVAL_MS);
    }
  }
  const health = checkHealth();
  const agents = Array.from({ length: CLIENTS }, () => new Agent({ keepAlive: true, maxSockets: 1 }));
  const clients = agents.map(async (agent, i) => {
    await sleep(1000 + (i / CLIENTS) * CLIENT_INTERVAL_MS);
    for (; !isOver; await sleep(CLIENT_INTERVAL_MS)) await requestWithRetries(agent, i);
  });
  const flooded = await flooding;
  const end = performance.now();
  while ((await request(address)).status !== 200) counts.recovery = performance.now() - end;
  await Promise.all([health, ...clients]);
  for (const agent of agents) agent.destroy();
  return { ...counts, capacity, flood: flooded, connections: FLOOD_CONNECTIONS };
}

async function flood(url: string, rate: number, connections: number, seconds: number): Promise<FloodResults> {
  const args = [url, rate, connections, seconds].map(String);
  const child = spawn(process.execPath, ['--import', 'tsx', 'bench/flood.ts', ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  return JSON.parse(await text(child.stdout));
}

interface Response {
  status: number | undefined;
  body: string;
  /** Seconds; 0 without the header. */
  retryAfter: number;
}

function request(url: string, options: RequestOptions = {}): Promise<Response> {
  return new Promise((resolve, reject) => {
    get(url, options, (response) => {
      const retryAfter = Number(response.headers['retry-after'] ?? 0);
      text(response).then((body) => resolve({ status: response.statusCode, body, retryAfter }), reject);
    }).once('error', reject);
  });
}
