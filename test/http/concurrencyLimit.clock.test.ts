/** What is refused because too many requests run at once, and how a client that retries at once is slowed down. */
import { Agent, get } from 'node:http';
import { expect, it } from 'vitest';
import { connectTo } from '../connection.js';
import { useListeningService } from '../listening.js';
import { until } from '../until.js';

const PATH = '/v1/brandedPhoneNumbers';
const service = useListeningService({ MAX_REQUESTS_IN_FLIGHT: '1', REQUEST_TIMEOUT_SECONDS: '60' });

/** The status of an answer on the one connection of `agent`, and the milliseconds it took. */
function ask(agent: Agent, path = PATH): Promise<{ status: number | undefined; milliseconds: number }> {
  const sent = performance.now();
  return new Promise((resolve, reject) => {
    get(`${service.url}${path}`, { agent }, (response) => {
      response
        .resume()
        .once('end', () => resolve({ status: response.statusCode, milliseconds: performance.now() - sent }));
    }).once('error', reject);
  });
}

it('a client that keeps retrying beyond the limit is refused, then slowed down, and no other client is', async () => {
  const sql = connectTo(service.databaseUrl, { max: 2 });
  const agents = Array.from({ length: 3 }, () => new Agent({ keepAlive: true, maxSockets: 1 }));
  const [first, greedy, other] = agents as [Agent, Agent, Agent];
  const slowest = await sql.begin(async (locking) => {
    // The one request that may be worked on waits for this.
    await locking`LOCK items IN ACCESS EXCLUSIVE MODE`;
    const working = ask(first);
    await until(async () => {
      const [row] = await sql`
        SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`;
      return row !== undefined;
    }, 'the request waits for the lock');
    // Backpressure begins after two hundred refusals in a second.
    let longest = 0;
    for (let refusals = 0; refusals < 1000 && longest < 900; refusals++) {
      const { status, milliseconds } = await ask(greedy);
      expect(status).toBe(503);
      if (refusals === 150) expect(longest).toBeLessThan(900);
      longest = Math.max(longest, milliseconds);
    }
    expect((await ask(other, '/healthz')).status).toBe(200);
    return { longest, working };
  });
  expect(slowest.longest).toBeGreaterThan(900);
  expect((await slowest.working).status).toBe(200);
  expect((await ask(greedy)).status).toBe(200);
  for (const agent of agents) agent.destroy();
  await sql.end();
});
