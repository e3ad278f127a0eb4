/** Ten times as many requests as a service can serve, and how modest clients fare meanwhile. */
import { spawn } from 'node:child_process';
import { Agent, get, type RequestOptions } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Flooded } from './flood.js';

/** Connections while the capacity is measured, and under the flood: most of what MAX_CONNECTIONS allows. */
const FEW = 32;
const MANY = 1500;
/** Modest clients beside the flood, each on its own connection, and milliseconds between two requests of any of them. */
const CLIENTS = 20;
const BETWEEN = 200;
/** Milliseconds within which a client wants its response, even if it has to ask several times. */
const DEADLINE = 5000;

export interface Overload {
  /** Answers a second without the flood. */
  capacity: number;
  flooded: Flooded;
  /** Requests of the modest clients, which retry after `Retry-After`: all, those answered at once, and those in time. */
  asked: number;
  atOnce: number;
  inTime: number;
  /** Of their responses, those that are neither right nor a refusal. */
  wrong: number;
  /** Milliseconds of the slowest `/healthz`, each on a new connection. */
  slowestHealth: number;
  /** Milliseconds after the flood until a request is answered. */
  recovered: number;
  connections: number;
}

/** Floods `path` of the service at `url` for so many seconds. */
export async function overload(url: string, path: string, seconds: number): Promise<Overload> {
  const address = `${url}${path}`;
  const expected = (await ask(address)).body;
  await flood(address, Number.MAX_SAFE_INTEGER, FEW, 2);
  const measured = await flood(address, Number.MAX_SAFE_INTEGER, FEW, 5);
  const capacity = (measured.statuses[200] ?? 0) / 5;
  const result = { connections: MANY, recovered: 0, asked: 0, atOnce: 0, inTime: 0, wrong: 0, slowestHealth: 0 };
  let isOver = false;
  const flooding = flood(address, 10 * capacity, MANY, seconds).finally(() => {
    isOver = true;
  });

  async function askUntilAnswered(agent: Agent, client: number): Promise<void> {
    const begin = performance.now();
    const left = () => begin + DEADLINE - performance.now();
    result.asked++;
    for (let tries = 1; left() > 0; tries++) {
      const options = { agent, headers: { 'X-Forwarded-For': `203.0.113.${client}` } };
      const { status, body, retryAfter } = await ask(address, options);
      if (status === 200) {
        if (body !== expected) result.wrong++;
        else if (left() > 0) result.inTime++;
        if (tries === 1 && left() > 0) result.atOnce++;
        return;
      }
      if (status !== 503 || !retryAfter) result.wrong++;
      await sleep(retryAfter * 1000);
    }
  }
  async function watchHealth(): Promise<void> {
    while (!isOver) {
      const begin = performance.now();
      const { status } = await ask(`${url}/healthz`, { agent: false });
      if (status !== 200) result.wrong++;
      result.slowestHealth = Math.max(result.slowestHealth, performance.now() - begin);
      await sleep(250);
    }
  }
  const health = watchHealth();
  const clients = Array.from({ length: CLIENTS }, () => new Agent({ keepAlive: true, maxSockets: 1 }));
  const asking = clients.map(async (agent, i) => {
    for (await sleep(1000 + i * BETWEEN); !isOver; await sleep(CLIENTS * BETWEEN)) await askUntilAnswered(agent, i);
  });
  const flooded = await flooding;
  const over = performance.now();
  while ((await ask(address)).status !== 200) result.recovered = performance.now() - over;
  await Promise.all([health, ...asking]);
  for (const agent of clients) agent.destroy();
  return { ...result, capacity, flooded };
}

async function flood(url: string, rate: number, connections: number, seconds: number): Promise<Flooded> {
  const settings = [url, rate, connections, seconds].map(String);
  const child = spawn(process.execPath, ['--import', 'tsx', 'bench/flood.ts', ...settings], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  return JSON.parse(await text(child.stdout));
}

interface Answer {
  status: number | undefined;
  body: string;
  /** Seconds; 0 where the response has none. */
  retryAfter: number;
}

function ask(url: string, options: RequestOptions = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    get(url, options, (response) => {
      const retryAfter = Number(response.headers['retry-after'] ?? 0);
      text(response).then((body) => resolve({ status: response.statusCode, body, retryAfter }), reject);
    }).once('error', reject);
  });
}
