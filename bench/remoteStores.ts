/** Times a page while PostgreSQL, and Redis if that counts the requests, respond 1 ms later than they do on this machine. */
import { Agent, get } from 'node:http';
import { startServer } from '../test/support/measuredServer.js';
import { hasRedis, startRedis } from '../test/support/redis.js';
import { openToxicProxy } from '../test/support/toxicProxy.js';
import { PATH, quantiles } from './latency.js';

const DELAY_MS = 1;
const ROUNDS = 20;
/** Requests of a version in a round; the first ones of each round are not measured. */
const REQUESTS = 60;
const WARM_UP = 10;

interface Version {
  name: string;
  command: string[];
  environment: Record<string, string> & { DATABASE_URL: string };
}

/**
 * Requests the first page from each version in turns, one request at a time, each from another address.
 * Returns a table of the medians in milliseconds, for both stores of the rate limit.
 */
export async function compareWithRemoteStores(versions: Version[]): Promise<string> {
  const rows = ['| store of the limit | version | median |', '| --- | --- | ---: |'];
  const redis = hasRedis ? await startRedis() : undefined;
  const redisProxy = redis && (await openToxicProxy(redis.port));
  redisProxy?.behave('slow', DELAY_MS);
  for (const store of redisProxy ? ['PostgreSQL', 'Redis'] : ['PostgreSQL']) {
    const medians = await measure(
      versions,
      store === 'Redis' ? { REDIS_URL: `redis://127.0.0.1:${redisProxy?.port}` } : {},
    );
    for (const [name, median] of medians) rows.push(`| ${store} | ${name} | ${median.toFixed(2)} ms |`);
  }
  await redisProxy?.close();
  await redis?.kill();
  return rows.join('\n');
}

async function measure(versions: Version[], store: Record<string, string>): Promise<Map<string, number>> {
  const times = new Map<string, number[]>(versions.map(({ name }) => [name, []]));
  const measured = await Promise.all(
    versions.map(async ({ name, command, environment }) => {
      const proxy = await openToxicProxy(Number(new URL(environment.DATABASE_URL).port));
      const DATABASE_URL = proxy.through(environment.DATABASE_URL);
      const server = await startServer(command, PATH, { ...environment, ...store, DATABASE_URL });
      proxy.behave('slow', DELAY_MS);
      return { name, proxy, server, agent: new Agent({ keepAlive: true, maxSockets: 1 }) };
    }),
  );
  for (let round = 0; round < ROUNDS; round++) {
    for (const { name, server, agent } of round % 2 === 0 ? measured : measured.toReversed()) {
      for (let i = 0; i < REQUESTS; i++) {
        const milliseconds = await timeOf(server.url, agent, `10.0.${round}.${i}`);
        if (i >= WARM_UP) times.get(name)?.push(milliseconds);
      }
    }
  }
  for (const { agent, server, proxy } of measured) {
    agent.destroy();
    await server.stop();
    await proxy.close();
  }
  return new Map([...times].map(([name, each]) => [name, quantiles(each).median]));
}

/** Requests the first page from `address`, and returns the milliseconds until the end of its response. */
function timeOf(origin: string, agent: Agent, address: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const start = performance.now();
    get(origin + PATH, { agent, headers: { 'X-Forwarded-For': address } }, (response) => {
      if (response.statusCode !== 200) reject(new Error(`status ${response.statusCode}`));
      response.resume().once('end', () => resolve(performance.now() - start));
    }).once('error', reject);
  });
}
