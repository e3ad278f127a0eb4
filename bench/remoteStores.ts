/** How long a page takes if PostgreSQL, and Redis as the store of the rate limit, respond 1 ms later, as over a network. */
import { Agent, get } from 'node:http';
import { hasRedis, startRedis } from '../test/support/redis.js';
import { openToxicProxy } from '../test/support/toxicProxy.js';
import { table } from './document.js';
import { PATH } from './latency.js';
import { quantiles } from './medians.js';
import { type Contender, startContender } from './throughput.js';

const DELAY_MS = 1;
const ROUNDS = 20;
/** Requests to each version in a round. */
const REQUESTS = 60;
/** Requests at the beginning of a round that are not measured. */
const WARM_UP = 10;

/** A version of the service, and its database. */
type Version = Contender & { url: string };

/**
 * Requests the first page from the versions in turn, one request at a time, each from another client address. Returns a
 * table of the medians for each store of the rate limit.
 */
export async function compareWithRemoteStores(versions: Version[]): Promise<string> {
  const rowsOf = (store: string, medians: number[]) =>
    versions.map(({ name }, index) => [store, name, `${medians[index]?.toFixed(2)} ms`]);
  const rows = rowsOf('PostgreSQL', await measure(versions, {}));
  if (hasRedis) {
    const redis = await startRedis();
    const proxy = await openToxicProxy(redis.port);
    proxy.behave('slow', DELAY_MS);
    rows.push(...rowsOf('Redis', await measure(versions, { REDIS_URL: proxy.through(redis.url) })));
    await proxy.close();
    await redis.kill();
  }
  return table(['rate limit store', 'server', 'median'], rows, [0, 1]);
}

/** Returns the median of each version in milliseconds; `store` has the settings of the rate limit store. */
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

/** Requests the first page as the client at `address`. Returns the milliseconds until the response has ended. */
function timeOf(origin: string, agent: Agent, address: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const start = performance.now();
    get(origin + PATH, { agent, headers: { 'X-Forwarded-For': address } }, (response) => {
      if (response.statusCode !== 200) reject(new Error(`status ${response.statusCode}`));
      response.resume().once('end', () => resolve(performance.now() - start));
    }).once('error', reject);
  });
}
