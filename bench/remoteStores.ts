/** Times a page while PostgreSQL, and Redis if that counts the requests, respond 1 ms later than they do on this machine. */
import { Agent, get } from 'node:http';
import { hasRedis, startRedis } from '../test/support/redis.js';
import { openToxicProxy } from '../test/support/toxicProxy.js';
import { PATH } from './latency.js';
import { quantiles } from './medians.js';
import { type Contender, startContender } from './throughput.js';

const DELAY_MS = 1;
const ROUNDS = 20;
/** Requests to a version in a round; the first ones of each round are not measured. */
const REQUESTS = 60;
const WARM_UP = 10;

/** A version of the service, and its database. */
type Version = Contender & { url: string };

/**
 * Requests the first page from each version in turn, one request at a time, each from another address.
 * Returns a table of the medians in milliseconds, for both stores of the rate limit.
 */
export async function compareWithRemoteStores(versions: Version[]): Promise<string> {
  const rows = ['| store of the limit | server | median |', '| --- | --- | ---: |'];
  const add = (store: string, medians: number[]) => {
    for (const [i, { name }] of versions.entries()) rows.push(`| ${store} | ${name} | ${medians[i]?.toFixed(2)} ms |`);
  };
  add('PostgreSQL', await measure(versions, {}));
  if (hasRedis) {
    const redis = await startRedis();
    const proxy = await openToxicProxy(redis.port);
    proxy.behave('slow', DELAY_MS);
    add('Redis', await measure(versions, { REDIS_URL: `redis://127.0.0.1:${proxy.port}` }));
    await proxy.close();
    await redis.kill();
  }
  return rows.join('\n');
}

async function measure(versions: Version[], store: Record<string, string>): Promise<number[]> {
  const measured = await Promise.all(
    versions.map(async ({ url, ...version }) => {
      const proxy = await openToxicProxy(Number(new URL(url).port));
      const environment = { ...version.environment, ...store };
      const server = await startContender({ ...version, environment }, proxy.through(url));
      proxy.behave('slow', DELAY_MS);
      return { proxy, server, agent: new Agent({ keepAlive: true, maxSockets: 1 }), times: [] as number[] };
    }),
  );
  for (let round = 0; round < ROUNDS; round++) {
    for (const { server, agent, times } of round % 2 === 0 ? measured : measured.toReversed()) {
      for (let i = 0; i < REQUESTS; i++) {
        const milliseconds = await timeOf(server.url, agent, `10.0.${round}.${i}`);
        if (i >= WARM_UP) times.push(milliseconds);
      }
    }
  }
  for (const { agent, server, proxy } of measured) {
    agent.destroy();
    await server.stop();
    await proxy.close();
  }
  return measured.map(({ times }) => quantiles(times).median);
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
