/**
 * Other clients of PostgreSQL use up its max_connections, which pages and the limit need. That a single service recovers
 * from it is tested in test/faults/database.clock.soak.test.ts; here are two, whose limit is in the same PostgreSQL.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type postgres from 'postgres';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { migrateDatabase } from '../../src/database/migrations.js';
import { migrationsFolder, packageFolder } from '../../src/packageFolder.js';
import { connectTo } from '../connection.js';
import { useUpConnections } from '../faults/otherClients.js';
import { mostInASecond } from '../mostInASecond.js';
import { type PostgresServer, startPostgres } from '../postgresServer.js';
import { until } from '../until.js';
import { type Answer, Client, expectServed, type Instance, startInstance, writeNumbers } from './instances.js';

/** Two instances take 14 of them. */
const MAX_CONNECTIONS = '24';
const LIMIT = 10;

let server: PostgresServer;
let instances: Instance[] = [];
let admin: postgres.Sql;
let clients: Client[] = [];

beforeEach(async () => {
  clients = Array.from({ length: 10 }, (_, i) => new Client(`203.0.113.${i + 1}`));
  server = await startPostgres({ max_connections: MAX_CONNECTIONS });
  await migrateDatabase(server.url, migrationsFolder);
  await writeNumbers(server.url);
  const settings = { DATABASE_URL: server.url, DATABASE_CONNECTIONS: '4' };
  instances = await Promise.all([startInstance(settings), startInstance(settings)]);
  admin = connectTo(server.url, { idle_timeout: 0, max_lifetime: null });
  await admin`SELECT 1`;
});
afterEach(async () => {
  for (const client of clients) client.close();
  for (const { child } of instances) child.kill('SIGKILL');
  await admin?.end({ timeout: 1 });
  await server?.remove();
});

/** Every client asks both instances in turn, 4 times a second. */
async function askFor(seconds: number): Promise<Answer[]> {
  const both = (i: number) => instances[i % instances.length];
  return (await Promise.all(clients.map((client, i) => client.askFor(seconds, 4, (j) => both(i + j))))).flat();
}

const millisecondsOf = ({ sent, came }: Answer) => came - sent;

it('instances without a connection answer 503 in time, and serve again once connections are free', async () => {
  // More requests at once than the connections that each instance has by now.
  const others = await useUpConnections(server.url);
  const first = await askFor(1);
  expectServed(first);
  // Statements that hang do not make an instance replace its connections: it would get no new ones.
  const hanging = admin.begin(async (transaction) => {
    await transaction`LOCK items IN ACCESS EXCLUSIVE MODE`;
    await sleep(1500);
  });
  await askFor(1.5);
  await hanging;
  const second = await askFor(0.5);
  expectServed(second);

  // Each connection of the instances that ends is taken by others before they can have it again.
  let isTaken = false;
  const taking = useUpConnections(server.url).finally(() => {
    isTaken = true;
  });
  while (!isTaken) {
    await admin`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'branded-phone-numbers %'`;
    await sleep(50);
  }
  const more = await taking;
  const [left] = await admin`
    SELECT count(*)::int AS count FROM pg_stat_activity WHERE application_name LIKE 'branded-phone-numbers %'`;
  expect(left?.count).toBe(0);

  const without = await askFor(2.5);
  expect(without.map(({ status }) => status).filter((status) => status !== 503 && status !== 429)).toEqual([]);
  const refused = without.filter(({ status }) => status === 503);
  expect(refused.length).toBeGreaterThan(without.length / 2);
  for (const { body, retryAfter } of refused) {
    expect([JSON.parse(body).type, retryAfter]).toEqual(['/problems/unavailable', '1']);
  }
  // Reads are sent again until the request's time is over, in case a connection becomes free.
  expect(Math.max(...without.map(millisecondsOf))).toBeLessThan(5000);
  for (const { url } of instances) expect((await fetch(`${url}/readyz`)).status).toBe(503);

  // An instance that is started now reports why it can't.
  const begin = performance.now();
  const late = spawn(process.execPath, [join(packageFolder, 'dist/src/main.js'), 'serve'], {
    env: { PATH: process.env.PATH ?? '', DATABASE_URL: server.url, PORT: '0' },
  });
  const [said, [code]] = await Promise.all([text(late.stderr), once(late, 'exit')]);
  expect(said).toMatch(/^database: .*\n.*(too many clients|remaining connection slots).*\n$/);
  expect([code, performance.now() - begin < 5000]).toEqual([1, true]);

  await Promise.all([others.leave(), more.leave()]);
  const free = performance.now();
  for (const { url } of instances) {
    await until(async () => (await fetch(`${url}/readyz`)).ok, 'it is ready again');
  }
  expect(performance.now() - free).toBeLessThan(2000);
  // By then the store answers both again, and their shares of the outage no longer apply.
  await sleep(3000);
  const last = await askFor(1);
  expectServed(last);
  const greedy = new Client('198.51.100.1');
  const burst = await Promise.all(Array.from({ length: 30 }, (_, i) => greedy.ask(instances[i % 2] as Instance)));
  greedy.close();
  expect(mostInASecond(burst)).toBe(LIMIT);
}, 60_000);
