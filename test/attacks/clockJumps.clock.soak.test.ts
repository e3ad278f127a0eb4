/** Clocks that jump by an hour, forward and back: that of the limit's store, or that of an instance. */
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { migrateDatabase } from '../../src/database/migrations.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import { createDatabase } from '../support/database.js';
import { Client, countByStatus, type Instance, startInstance, writeNumbers } from '../support/instanceProcesses.js';
import { mostInASecond } from '../support/mostInASecond.js';
import { startPostgres } from '../support/postgresServer.js';
import { hasRedis, startRedis } from '../support/redis.js';

const LIMIT = 10;
const HOUR = 3600;
/** Debian's package faketime; and libc, since the allocator of Redis asks for the time before faketime can tell it. */
const [faketime, libc] = ['*/libfaketime.so.1', '*/libc.so.6'].map((path) =>
  execFileSync('find', ['/usr/lib', '-path', path], { encoding: 'utf8' }).split('\n').find(Boolean),
);
const isRunnable = hasRedis && faketime !== undefined && libc !== undefined;
if (!isRunnable && process.env.SKIP_NOTHING) throw new Error('faketime is not installed');

/** A clock that can be set: `environment` is for those who go by it. Their timers go by another, as on a real machine. */
function openClock() {
  const folder = mkdtempSync(join(tmpdir(), 'branded-phone-numbers-clock-'));
  const file = join(folder, 'offset');
  const set = (seconds: number) => writeFileSync(file, `${seconds < 0 ? '' : '+'}${seconds}\n`);
  set(0);
  chmodSync(folder, 0o755);
  const environment = {
    LD_PRELOAD: `${faketime} ${libc}`,
    FAKETIME_TIMESTAMP_FILE: file,
    FAKETIME_NO_CACHE: '1',
    FAKETIME_DONT_FAKE_MONOTONIC: '1',
  };
  /** Starts a server that goes by the clock. */
  async function startBy<T>(start: () => Promise<T>): Promise<T> {
    Object.assign(process.env, environment);
    try {
      return await start();
    } finally {
      for (const name of Object.keys(environment)) delete process.env[name];
    }
  }
  return { set, environment, startBy, remove: () => rmSync(folder, { recursive: true }) };
}

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

/** Two instances that share a limit, of which one part goes by a clock that can be set. */
async function startTwo(whose: string) {
  const clock = openClock();
  closing.push(() => clock.remove());
  let databaseUrl: string;
  if (whose === 'PostgreSQL') {
    const server = await clock.startBy(() => startPostgres());
    closing.push(() => server.remove());
    await migrateDatabase(server.url, migrationsFolder);
    databaseUrl = server.url;
  } else {
    const { url, drop } = await createDatabase();
    closing.push(drop);
    databaseUrl = url;
  }
  await writeNumbers(databaseUrl);
  const environment: Record<string, string> = { DATABASE_URL: databaseUrl };
  if (whose === 'Redis') {
    const redis = await clock.startBy(() => startRedis());
    closing.push(() => redis.kill());
    environment.REDIS_URL = redis.url;
  }
  const instances: Instance[] = [];
  for (let i = 0; i < 2; i++) {
    instances.push(await startInstance({ ...environment, ...(whose === 'Node' ? clock.environment : {}) }));
    closing.push(() => instances[i]?.child.kill('SIGKILL'));
  }
  return { clock, instances };
}

// test/service/rateLimit/ sets the clocks of both stores back.
describe.skipIf(!isRunnable).each([
  ['PostgreSQL', 'forward', HOUR],
  ['Redis', 'forward', HOUR],
  ['Node', 'forward', HOUR],
  ['Node', 'back', -HOUR],
])('when the clock of %s jumps %s by an hour', (whose, _to, jump) => {
  it('the limit holds, and no client is blocked for longer than a second', async () => {
    const { clock, instances } = await startTwo(whose);
    const client = new Client('203.0.113.1');
    closing.push(() => client.close());
    const asking = client.askFor(8, 60, (i) => instances[i % 2]);
    await sleep(3000);
    clock.set(jump);
    await sleep(2000);
    const recovered = performance.now();
    const responses = await asking;
    const counts = countByStatus(responses);
    const later = responses.filter(({ sent, status }) => sent >= recovered && status === 200).length;
    console.log(`${whose}, ${jump} s: ${JSON.stringify(counts)}, at most ${mostInASecond(responses)} in a second`);
    expect(Object.keys(counts)).toEqual(['200', '429']);
    // A store whose clock is set forward has forgotten the second before, as one that comes back empty.
    expect(mostInASecond(responses)).toBeLessThanOrEqual(whose !== 'Node' && jump > 0 ? 2 * LIMIT : LIMIT);
    expect(later).toBeGreaterThanOrEqual(1.5 * LIMIT);
  });
});
