import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { codeOf } from '../../../src/database/errors.js';
import { openLog } from '../../../src/log.js';
import { createMetrics } from '../../../src/metrics.js';
import { type LimitStore, STORE_TIMEOUT_MS } from '../../../src/service/rateLimit/limiter.js';
import { openPostgresStore } from '../../../src/service/rateLimit/postgresStore.js';
import { createRateLimit } from '../../../src/service/rateLimit/rateLimit.js';
import { whileLocked } from '../../support/connection.js';
import { useDatabase } from '../../support/database.js';
import { useProxy } from '../../support/toxicProxy.js';
import { until } from '../../support/until.js';
import { withinASecond } from '../../support/withinASecond.js';
import { count as countIn } from './counting.js';

let store: LimitStore;
const database = useDatabase();

beforeAll(async () => {
  store = openPostgresStore(database.url, 10, failSweep);
  await untilItCounts(store);
});
afterAll(() => store.close());

const failSweep = (reason: Error) => {
  throw reason;
};

/** Opens a store for the current test. */
function open(url = database.url, points = 10, onFailedSweep: (reason: Error) => void = failSweep): LimitStore {
  const opened = openPostgresStore(url, points, onFailedSweep);
  onTestFinished(() => opened.close());
  return opened;
}

const untilItCounts = (counting: LimitStore, timeoutMs?: number) =>
  until(() => counting.consume('first').then(Boolean, () => false), 'it counts', timeoutMs);

const count = (client: string, counting = store) => countIn(counting, client);
const isAllowed = async (client: string) => (await count(client)).allowed;
/** Repeats a burst until it is so short that no waiting request can time out. */
const inTime = (burst: () => Promise<void>) => withinASecond(burst, { limitMs: STORE_TIMEOUT_MS });

describe('the store in PostgreSQL', () => {
  it.each([
    { when: 'in one turn of the event loop', statements: 1, wait: async () => {} },
    { when: 'during a statement', statements: 2, wait: () => sleep(1) },
  ])('counts the requests that arrive $when, of all clients, in one statement', ({ statements, wait }) =>
    inTime(async () => {
      const name = `together ${performance.now()}`;
      const first = isAllowed(`${name}:first`);
      await wait();
      const busy = Array.from({ length: 15 }, () => isAllowed(`${name}:busy`));
      const quiet = Array.from({ length: 30 }, (_, i) => isAllowed(`${name}:${i}`));
      expect(await first).toBe(true);
      expect(await Promise.all(quiet)).toEqual(Array(30).fill(true));
      expect((await Promise.all(busy)).filter(Boolean)).toHaveLength(10);
      const [found] = await database.sql`
        SELECT count(*)::integer AS clients, count(DISTINCT xmin::text)::integer AS statements,
          max(cardinality(requests)) AS most
        FROM rate_limits WHERE client LIKE ${`${name}:%`}`;
      expect(found).toEqual({ clients: 32, statements, most: 10 });
    }),
  );

  it('never sends a request whose caller has given up', async () => {
    const proxy = await useProxy(database.url);
    const slow = open(proxy.through(database.url));
    await untilItCounts(slow);
    proxy.behave('slow', 2 * STORE_TIMEOUT_MS);
    const sent = slow.consume('sent');
    await sleep(1);
    const ends = await Promise.allSettled([sent, slow.consume('given up')]);
    expect(ends.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
    const found = await database.sql`SELECT client FROM rate_limits WHERE client IN ('sent', 'given up')`;
    expect(found.map(({ client }) => client)).toEqual(['sent']);
  });

  it('never deadlocks with an instance that counts the same clients in the opposite order', async () => {
    const other = open();
    await untilItCounts(other);
    const clients = Array.from({ length: 100 }, (_, i) => `crossing:${i}`);
    // Those that time out before they are sent, as on a busy machine, have no code.
    const codes: Promise<string>[] = [];
    const codeOfCount = (client: string, counting: LimitStore) => count(client, counting).then(() => '', codeOf);
    for (let round = 0; round < 5; round++) {
      codes.push(...clients.map((client) => codeOfCount(client, store)));
      codes.push(...[...clients].reverse().map((client) => codeOfCount(client, other)));
      await sleep(1);
    }
    expect([...new Set(await Promise.all(codes))]).toEqual(['']);
  });

  it('returns the remaining requests for each of several simultaneous ones', () =>
    inTime(async () => {
      const client = `in order ${performance.now()}`;
      const decisions = await Promise.all(Array.from({ length: 12 }, () => count(client)));
      expect(decisions.map(({ remaining }) => remaining)).toEqual([9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0]);
      expect(decisions.map(({ allowed }) => allowed)).toEqual([...Array(10).fill(true), false, false]);
    }));

  it('shares its counts with an instance that has a higher limit, as while the setting is changed', async () => {
    const other = open(database.url, 20);
    await untilItCounts(other);
    await withinASecond(async () => {
      const client = `shared ${performance.now()}`;
      for (let i = 0; i < 15; i++) await other.consume(client);
      expect(await count(client)).toMatchObject({ allowed: false });
      expect(await other.consume(client)).toMatchObject({ remainingPoints: 4 });
    });
  });

  const set = (setting: string) =>
    database.sql.unsafe(`ALTER DATABASE "${new URL(database.url).pathname.slice(1)}" ${setting}`);

  it('counts for several instances at once although the database defaults to REPEATABLE READ', async () => {
    await set("SET default_transaction_isolation = 'repeatable read'");
    const stores = [1, 2, 3].map(() => open(database.url, 1000));
    const codes: Promise<string>[] = [];
    for (let round = 0; round < 60; round++) {
      codes.push(...stores.map((store) => store.consume('isolated').then(() => 'counted', codeOf)));
      await sleep(5);
    }
    const ends = new Set(await Promise.all(codes));
    await set('RESET default_transaction_isolation');
    expect(ends).toContain('counted');
    expect(ends).not.toContain('40001');
  });

  it('replaces read-only connections, such as those to a standby, until one can write', async () => {
    await set('SET default_transaction_read_only = on');
    const store = open(database.url, 10, () => {});
    await until(() =>
      store.consume('read-only').then(
        () => false,
        (error) => codeOf(error) === '25006',
      ),
    );
    await set('RESET default_transaction_read_only');
    await untilItCounts(store, 3000);
  });

  it('removes idle clients without waiting for locked rows', { timeout: 180_000 }, async () => {
    const { sql } = database;
    await sql`
      INSERT INTO rate_limits SELECT client, ARRAY[now() - interval '2 minutes'], 1
      FROM unnest('{idle 1,idle 2}'::text[]) AS client`;
    const idleClients = () => sql`SELECT client FROM rate_limits WHERE client LIKE 'idle%'`;
    // If a busy machine ends a sweep, the next one begins after a minute.
    const sweeping = open(database.url, 10, () => {});
    await untilItCounts(sweeping);
    await whileLocked(database.url, "SELECT FROM rate_limits WHERE client = 'idle 1' FOR UPDATE", async () => {
      sweeping.startSweeping?.();
      await until(async () => (await idleClients()).length === 1, 'the other client is removed', 150_000);
      expect(await idleClients()).toEqual([{ client: 'idle 1' }]);
    });
  });

  it('reports no failed sweep while it is closed', async () => {
    const failures: Error[] = [];
    const sweeping = openPostgresStore(database.url, 10, (reason) => failures.push(reason));
    await untilItCounts(sweeping);
    await whileLocked(database.url, 'LOCK rate_limits', async () => {
      sweeping.startSweeping?.();
      await sweeping.close();
    });
    expect(failures).toEqual([]);
  });

  it.each([
    ['lacks a privilege', '', 'permission denied for table rate_limits; grant its role what'],
    [
      'would not see all rows',
      'GRANT ALL ON rate_limits TO ROLE; ALTER TABLE rate_limits ENABLE ROW LEVEL SECURITY',
      'query would be affected by row-level security policy',
    ],
  ])('does not start if its role %s, and says why', async (_what, statements, reason) => {
    const role = `reader_${process.pid}`;
    const { sql } = database;
    await sql.unsafe(`CREATE ROLE ${role} LOGIN PASSWORD 'password'; ${statements.replace('ROLE', role)}`);
    const limited = new URL(database.url);
    [limited.username, limited.password] = [role, 'password'];
    const rateLimit = createRateLimit(
      { RATE_LIMIT_PER_SECOND: 10, REDIS_URL: undefined },
      limited.href,
      openLog({ LOG_LEVEL: 'silent' }),
      createMetrics(1),
    );
    await expect(rateLimit.warmUp()).rejects.toThrow(`DATABASE_URL: the rate limit can't be counted: ${reason}`);
    await rateLimit.close();
    await sql.unsafe(`
      ALTER TABLE rate_limits DISABLE ROW LEVEL SECURITY;
      DROP OWNED BY ${role};
      DROP ROLE ${role}`);
  });

  it('connects although a login takes almost a second', async () => {
    const proxy = await useProxy(database.url);
    proxy.behave('slow', 900);
    const slow = open(proxy.through(database.url));
    slow.consume('slow').catch(() => {});
    await sleep(300);
    proxy.behave('passing');
    await untilItCounts(slow, 5000);
    expect(proxy.accepted()).toBe(1);
  });
});
