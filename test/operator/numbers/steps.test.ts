/** How large steps are, and what they do to other programs. */
import { execFileSync } from 'node:child_process';
import { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Fragment, Sql } from 'postgres';
import { afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { Transaction } from '../../../src/database/connection.js';
import { codeOf } from '../../../src/database/errors.js';
import { lockToWrite } from '../../../src/operator/numbers/numberLocks.js';
import { give, givenKeys, keyOf } from '../../../src/operator/numbers/rows.js';
import { Spool } from '../../../src/operator/numbers/spool.js';
import { runSteps, type Steps } from '../../../src/operator/numbers/steps.js';
import { packageFolder } from '../../../src/packageFolder.js';
import { connectTo, untilLockIsAwaited } from '../../support/connection.js';
import { closeDatabase, inTransaction, useDatabase, usePool } from '../../support/database.js';
import { numberWith, write as writeNumbers } from '../../support/numbers.js';
import { useProxy } from '../../support/toxicProxy.js';
import { until } from '../../support/until.js';

const database = useDatabase();
/** The connection of another program. */
let other: Sql;
let spool: Spool;

beforeAll(() => {
  other = database.sql;
});
beforeEach(async () => {
  spool = new Spool();
  await other`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
  await writeNumbers(
    database.drizzle,
    ['+11', '+12', '+13', '+14'].map((phoneNumber) => numberWith({ phoneNumber })),
  );
});
afterEach(() => spool.close());

/** Returns this many keys. */
const manyKeys = (count: number) => Array.from({ length: count }, (_, i) => `+${i + 1}`);

/** Adds rows with these keys, each of which concerns this many entries. */
const add = (keys: string[], entries = 0) => {
  for (const key of keys) spool.add(`${entries}\t${key}`);
};

const setName = (sql: Transaction) =>
  sql`UPDATE branded_phone_numbers SET internal_name = 'Written' WHERE phone_number = ANY (${givenKeys(sql)})`;
const settingNames: Steps = { lock: lockToWrite, write: (sql) => [setName(sql)] };
/** Takes this many seconds for each row. */
const settingNamesSlowly = (seconds: number): Steps => ({
  ...settingNames,
  write: (sql) => [sql`SELECT pg_sleep(cardinality(${givenKeys(sql)}) * ${sql.unsafe(`${seconds}`)})`, setName(sql)],
});
const written = async () => (await other`SELECT FROM branded_phone_numbers WHERE internal_name = 'Written'`).length;

/** Runs steps, and returns how many rows each has written. */
async function sizesOf(steps: Steps, url = database.url): Promise<number[]> {
  const sizes: number[] = [];
  await runSteps(url, spool, { ...steps, onWritten: (rows) => sizes.push(rows.length) });
  return sizes;
}

/** The sessions of the tested database that sleep. */
const sleeping = () => other`pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`;
const untilSleeping = () => until(async () => (await other`SELECT FROM ${sleeping()}`).length > 0, 'a step sleeps');

/** Lets the last statement of a step take this many seconds for each row, until the test ends. */
async function waitDeferred(seconds: number) {
  await other.unsafe(`
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(${seconds}); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER wait AFTER UPDATE ON branded_phone_numbers DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION wait()`);
  onTestFinished(async () => void (await other`DROP FUNCTION wait CASCADE`));
}

/** Returns what is printed to standard error, which is not shown until the test ends. */
function watchErrors() {
  const printed = vi.spyOn(console, 'error').mockReturnValue();
  onTestFinished(() => printed.mockRestore());
  return printed;
}

/** Returns how many milliseconds the test has skipped on this process's clock. */
function startClock() {
  const clock = { skipped: 0 };
  const now = performance.now.bind(performance);
  const reading = vi.spyOn(performance, 'now').mockImplementation(() => now() + clock.skipped);
  onTestFinished(() => reading.mockRestore());
  return clock;
}

it('a lock of a number waits for the entries first, in the order of a program that changes an entry', async () => {
  await other`INSERT INTO carrier_statuses VALUES ('+11', 'AT&T', 'brandedCallerId', 'approved.optIn')`;
  await other`BEGIN; SELECT FROM carrier_statuses WHERE phone_number = '+11' FOR UPDATE`.simple();
  const locking = inTransaction(database.url, 'READ COMMITTED', async (sql) => {
    await give(sql, ['1\t+11']);
    for (const statement of lockToWrite(sql, true)) expect(await sql`${statement}`).toEqual([]);
  });
  await untilLockIsAwaited(other, 'the lock waits');
  await other`SELECT FROM branded_phone_numbers WHERE phone_number = '+11' FOR UPDATE NOWAIT`;
  await other`COMMIT`;
  await locking;
});

describe('a job', () => {
  const [role, password] = [`few_${process.pid}`, 'password'];
  beforeAll(async () => {
    await other.unsafe(
      `CREATE ROLE ${role} LOGIN PASSWORD '${password}' CONNECTION LIMIT 2 IN ROLE pg_write_all_data, pg_read_all_data`,
    );
  });
  const asRole = () => String(Object.assign(new URL(database.url), { username: role, password }));

  /** Runs steps of one row each, which take some seconds. Returns the number of jobs, the rows written, and what was printed. */
  async function runJobs(url: string, jobs: number, keys: string[], seconds: (sql: Transaction) => Fragment) {
    const printed = watchErrors();
    add(keys, 5000);
    const done: string[] = [];
    const steps: Steps = {
      lock: () => [],
      write: (sql) => [sql`SELECT pg_sleep(${seconds(sql)})`],
      onWritten: (rows) => done.push(...rows.map(keyOf)),
    };
    return [await runSteps(url, spool, steps, { jobs }), done.sort(), printed.mock.calls];
  }

  const tooFew = (jobs: number) => `PostgreSQL has too few free connections for --jobs ${jobs}: continuing with fewer`;

  it('leaves its work to the other ones if PostgreSQL has no connection for it, which is said once', async () => {
    const keys = manyKeys(40);
    expect(await runJobs(asRole(), 5, keys, (sql) => sql`0.05`)).toEqual([2, keys.sort(), [[tooFew(5)]]]);
  });

  it('leaves its work to the other ones if it gets no connection for a minute while they write', async () => {
    const clock = startClock();
    const proxy = await useProxy(database.url);
    proxy.limitTo(1);
    const keys = manyKeys(4);
    const running = runJobs(proxy.through(database.url), 2, keys, (sql) => sql`0.7`);
    await until(() => proxy.accepted() > 3, 'it was refused several times');
    clock.skipped = 60_000;
    expect(await running).toEqual([1, keys, [[tooFew(2)]]]);
  });

  it('goes on if its session is ended in its first step', async () => {
    const keys = Array.from({ length: 10 }, (_, i) => `+1${i}`);
    const seconds = (sql: Transaction) => sql`CASE WHEN '+10' = ANY (${givenKeys(sql)}) THEN 1 ELSE 0.2 END`;
    const running = runJobs(database.url, 2, keys, seconds);
    const ended = () => other`
      SELECT pg_terminate_backend(pid) FROM ${sleeping()} AND xact_start < clock_timestamp() - interval '0.5 s'`;
    await until(async () => (await ended()).length > 0, 'the session of the long step is ended');
    expect(await running).toEqual([2, keys, []]);
  });

  it('goes on if its login is not answered while another one is served', async () => {
    const proxy = await useProxy(database.url);
    proxy.breakLogin('half, then silence');
    const keys = manyKeys(9);
    expect(await runJobs(proxy.through(database.url), 2, keys, (sql) => sql`0.4`)).toEqual([2, keys, []]);
  });

  it('waits for another connection with the step of one that broke', async () => {
    const limitTo = (count: number) => other.unsafe(`ALTER ROLE ${role} CONNECTION LIMIT ${count}`);
    const keys = manyKeys(9);
    const running = runJobs(asRole(), 2, keys, (sql) => sql`0.4`);
    await until(async () => (await other`SELECT FROM ${sleeping()}`).length === 2, 'both write');
    await limitTo(1);
    await other`SELECT pg_terminate_backend(pid) FROM ${sleeping()} LIMIT 1`;
    await sleep(700);
    await limitTo(2);
    expect(await running).toEqual([2, keys, []]);
  });

  it('needs no connection any more once the other ones have written everything', async () => {
    const clock = startClock();
    const proxy = await useProxy(database.url);
    proxy.limitTo(1);
    let seconds = '0.4';
    const keys = manyKeys(9);
    const running = runJobs(proxy.through(database.url), 2, keys, (sql) => sql.unsafe(seconds));
    await until(() => proxy.accepted() > 2, 'it was refused');
    proxy.breakLogin('half, then silence');
    proxy.limitTo(2);
    const accepted = proxy.accepted();
    await until(() => proxy.accepted() > accepted, 'it waits for the login');
    clock.skipped = 60_000;
    seconds = '0';
    expect(await running).toEqual([2, keys, []]);
  });

  it('waits for a connection as long as no other one has any', async () => {
    const holders = [usePool(asRole()), usePool(asRole())];
    for (const holder of holders) await holder.$client`SELECT`;
    setTimeout(() => holders.forEach((holder) => void closeDatabase(holder, 0)), 500);
    expect(await runJobs(asRole(), 2, ['+11', '+12', '+13'], (sql) => sql`0`)).toEqual([2, ['+11', '+12', '+13'], []]);
  });
});

describe('a step', () => {
  it('has as many rows as its work allows, but at least one', () => {
    add(['+11', '+12'], 90);
    add(['+13'], 5000);
    add(['+14', `+15\t${'x'.repeat(100_000)}`]);
    const taken = Array.from({ length: 5 }, () => spool.take(200).map(keyOf));
    expect(taken).toEqual([['+11', '+12'], ['+13'], ['+14'], ['+15'], []]);
  });

  it('is halved, down to one row, whenever it takes too long', async () => {
    add(['+11', '+12', '+13', '+14']);
    expect(await sizesOf(settingNamesSlowly(0.25))).toEqual([1, 1, 1, 1]);
    expect(await written()).toBe(4);
  });

  it('is smaller after one that took too long', async () => {
    add(manyKeys(600), 20);
    const taken = vi.spyOn(spool, 'take');
    await runSteps(database.url, spool, settingNamesSlowly(0.005));
    expect(taken.mock.results.filter(({ value }) => value.length > 60)).toHaveLength(1);
  });

  it('grows at most twofold', async () => {
    add(manyKeys(800), 20);
    const sizes = await sizesOf(settingNames);
    // A single step may be slow: the machine may be busy.
    expect(Math.max(...sizes)).toBeGreaterThan(sizes[0] ?? 0);
    // A row more or less fits into a step.
    for (const [i, size] of sizes.slice(1).entries()) expect(size).toBeLessThanOrEqual(2 * (sizes[i] ?? 0) + 2);
  });

  it.each(['', '?prepare=false'])('is not halved because PostgreSQL is far away%s', async (parameter) => {
    const proxy = await useProxy(database.url);
    const url = proxy.through(database.url) + parameter;
    // Three round trips take longer than the time limit of a statement.
    proxy.behave('slow', 150);
    await waitDeferred(0.01);
    add(['+11', '+12', '+13', '+14']);
    expect([await sizesOf(settingNames, url), await written()]).toEqual([[4], 4]);
  });

  it('waits for locks and runs a statement for half a second together', async () => {
    add(['+11', '+12']);
    let limits: string[] = [];
    await runSteps(database.url, spool, {
      ...settingNames,
      write: (sql) => [
        sql`SELECT sum(setting::int)::text AS key FROM pg_settings WHERE name IN ('lock_timeout', 'statement_timeout')`,
      ],
      onWritten: (_, keys) => (limits = keys),
    });
    expect(Number(limits[0])).toBeGreaterThan(400);
    expect(Number(limits[0])).toBeLessThanOrEqual(500);
  });

  it('is halved as well if its statements and what it deferred take too long together', async () => {
    add(['+11', '+12']);
    await waitDeferred(0.15);
    expect(await sizesOf(settingNamesSlowly(0.15))).toEqual([1, 1]);
  });

  it('is halved as well if a statement that PostgreSQL does not limit took longer than the whole step', async () => {
    add(['+11', '+12']);
    const steps: Steps = {
      lock: (sql) => [
        sql`SET LOCAL statement_timeout = 0; SELECT pg_sleep((cardinality(${givenKeys(sql)}) - 1) * 0.5)`,
      ],
      write: (sql) => [sql`SELECT pg_sleep(0.01)`],
    };
    expect(await sizesOf(steps)).toEqual([1, 1]);
  });

  it('of one row is retried after it was canceled by another program', async () => {
    add(['+11']);
    let attempts = 0;
    await runSteps(database.url, spool, {
      ...settingNames,
      write(sql) {
        if (++attempts > 1) return [setName(sql)];
        void untilSleeping().then(() => other`SELECT pg_cancel_backend(pid) FROM ${sleeping()}`);
        return [sql`SELECT pg_sleep(10)`];
      },
    });
    expect([attempts, await written()]).toEqual([2, 1]);
  });

  it('of one row may take several seconds, but waits for less than half a second', async () => {
    add(['+11']);
    let [isBusy, attempts, waits] = [true, 0, 0];
    await runSteps(database.url, spool, {
      lock(sql, isWaiting) {
        attempts++;
        if (!isWaiting) return isBusy ? [sql`SELECT '+11' AS busy`] : [];
        // Waits for several locks, each of which is free in time.
        if (++waits < 3) return Array.from({ length: 8 }, () => sql`SELECT pg_sleep(0.08)`);
        isBusy = false;
        return [sql`SELECT '+11' AS busy`];
      },
      write: (sql) => [sql`SELECT pg_sleep(0.5)`, setName(sql)],
    });
    // Found to be busy, then waited for, three times.
    expect([attempts, waits, await written()]).toEqual([7, 3, 1]);
  });

  it.each([
    ['is retried after a few conflicts with other programs', 5, { code: undefined, attempts: 6, written: 1 }],
    ['gives up after twenty conflicts with other programs', 21, { code: '23505', attempts: 21, written: 0 }],
  ])('%s', async (_what, conflicts, outcome) => {
    add(['+11']);
    let attempts = 0;
    const running = runSteps(database.url, spool, {
      ...settingNames,
      write: (sql) => [attempts++ < conflicts ? sql`DO 'BEGIN RAISE unique_violation; END'` : setName(sql)],
    });
    const code = await running.then(() => undefined, codeOf);
    expect({ code, attempts, written: await written() }).toEqual(outcome);
  });

  it('is retried only after a pause', async () => {
    const longest = vi.spyOn(Math, 'random').mockReturnValue(1);
    onTestFinished(() => longest.mockRestore());
    add(['+11']);
    const lock = vi.fn((sql: Transaction) => [sql`DO 'BEGIN RAISE lock_not_available; END'`]);
    const running = runSteps(database.url, spool, { lock, write: () => [] }, { signal: AbortSignal.timeout(1500) });
    await expect(running).rejects.toThrow('timeout');
    expect(lock.mock.calls.length).toBeLessThanOrEqual(8);
  });

  it('gives way before PostgreSQL ends another program’s transaction because of a deadlock with it', async () => {
    add(['+11']);
    await other`BEGIN`;
    await other`SELECT FROM branded_phone_numbers WHERE phone_number = '+12' FOR UPDATE`;
    let updated: Promise<unknown> | undefined;
    await runSteps(database.url, spool, {
      ...settingNames,
      write(sql) {
        const isFirst = updated === undefined;
        updated ??= (async () => {
          await untilSleeping();
          await other`UPDATE branded_phone_numbers SET internal_name = 'Other' WHERE phone_number = '+11'`;
          await other`COMMIT`;
        })();
        return [
          sql`SELECT pg_sleep(${sql.unsafe(isFirst ? '0.5' : '0')})`,
          sql`UPDATE branded_phone_numbers SET internal_name = 'Written' WHERE phone_number IN ('+11', '+12')`,
        ];
      },
    });
    await updated;
    expect(await written()).toBe(2);
  });

  it('takes no new rows while many are postponed, since these are in memory', async () => {
    add(manyKeys(200), 2495);
    const taken = vi.spyOn(spool, 'take');
    const count = () => taken.mock.results.reduce((sum, { value }) => sum + value.length, 0);
    const pauses = vi.spyOn(Math, 'random').mockReturnValue(0);
    let attempts = 0;
    await runSteps(database.url, spool, {
      lock: (sql) => [++attempts > 100 ? sql`SELECT` : sql`DO 'BEGIN RAISE lock_not_available; END'`],
      write(sql) {
        if (attempts <= 100) expect(count()).toBeLessThan(60);
        return [sql`SELECT`];
      },
    });
    pauses.mockRestore();
    expect(count()).toBe(200);
  });

  it('holds no locks while its command is suspended', async () => {
    add(['+11']);
    const program = `
      const sql = (await import('postgres')).default(${JSON.stringify(database.url)});
      await sql\`SET lock_timeout = '5s'\`;
      await sql\`UPDATE branded_phone_numbers SET reporting_group = 'Another' WHERE phone_number = '+11'\`;
      await sql.end();`;
    const { write } = Socket.prototype;
    const sending = vi.spyOn(Socket.prototype, 'write').mockImplementation(function (this: Socket, ...sent) {
      const result = Reflect.apply(write, this, sent);
      // This process stands still until another one has written the row that the message has locked.
      if (String(sent[0]).includes('FOR UPDATE')) {
        execFileSync(process.execPath, ['--input-type=module', '--eval', program], { cwd: packageFolder });
      }
      return result;
    });
    onTestFinished(() => sending.mockRestore());
    await runSteps(database.url, spool, settingNames);
    const [row] =
      await other`SELECT internal_name, reporting_group FROM branded_phone_numbers WHERE phone_number = '+11'`;
    expect(row).toEqual({ internal_name: 'Written', reporting_group: 'Another' });
  });

  it('ends after a signal, although its connection was cut silently', async () => {
    const proxy = await useProxy(database.url);
    add(['+11']);
    const stop = new AbortController();
    const running = runSteps(proxy.through(database.url), spool, settingNamesSlowly(1), { signal: stop.signal });
    await untilSleeping();
    proxy.forgetConnections();
    stop.abort(new Error('stopped'));
    await expect(running).rejects.toThrow('stopped');
  });

  it('fails, and writes nothing, if a trigger resets the settings that hold its rows', async () => {
    await other.unsafe(`
      CREATE FUNCTION tidy() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RESET ALL; RETURN NULL; END';
      CREATE TRIGGER tidy AFTER UPDATE ON branded_phone_numbers FOR EACH STATEMENT EXECUTE FUNCTION tidy()`);
    onTestFinished(async () => void (await other`DROP FUNCTION tidy CASCADE`));
    add(['+11']);
    await expect(runSteps(database.url, spool, settingNames)).rejects.toThrow('a trigger has reset the settings');
    expect(await written()).toBe(0);
  });

  it('whose connection ended before its commit has changed no row that another program has changed since', async () => {
    const third = connectTo(database.url);
    // Steps of one row, which may take long.
    add(['+11', '+12'], 5000);
    const deleted: string[] = [];
    let attempts = 0;
    await runSteps(database.url, spool, {
      lock: lockToWrite,
      countsChanges: true,
      write(sql) {
        const change = sql`DELETE FROM branded_phone_numbers WHERE phone_number = ANY (${givenKeys(sql)}) RETURNING phone_number AS key`;
        if (++attempts > 1) return [change];
        const end = async () => {
          await untilSleeping();
          const deleting = other`DELETE FROM branded_phone_numbers WHERE phone_number = '+11'`.execute();
          await untilLockIsAwaited(third, 'another program waits for the row');
          await third`SELECT pg_terminate_backend(pid) FROM ${sleeping()}`;
          await deleting;
        };
        void end();
        return [change, sql`SELECT pg_sleep(10)`];
      },
      onWritten: (_, keys) => deleted.push(...keys),
    });
    await third.end();
    expect([attempts, deleted]).toEqual([3, ['+12']]);
  });

  it.each([
    ['is written once PostgreSQL can be reached', false],
    ['ends after a signal, although PostgreSQL can’t be reached', true],
  ])('%s', async (_outcome, endsBySignal) => {
    const proxy = await useProxy(database.url);
    proxy.behave('refusing');
    add(['+11']);
    const stop = new AbortController();
    const running = runSteps(proxy.through(database.url), spool, settingNames, { signal: stop.signal });
    setTimeout(() => (endsBySignal ? stop.abort(new Error('stopped')) : proxy.behave('passing')), 500);
    if (endsBySignal) await expect(running).rejects.toThrow('stopped');
    else await running;
    expect(await written()).toBe(endsBySignal ? 0 : 1);
  });

  it.each(['a step was written', 'a lock was not free'])('is retried for a minute again after %s', async (between) => {
    const clock = startClock();
    add(['+11', '+12'], 5000);
    let attempts = 0;
    const failures = ['outage', between, 'outage'];
    await runSteps(database.url, spool, {
      ...settingNames,
      write(sql) {
        const failure = failures[attempts++];
        clock.skipped += 40_000;
        if (failure === 'outage') return [sql`SET LOCAL transaction_read_only = on`, setName(sql)];
        if (failure === 'a lock was not free') return [sql`DO 'BEGIN RAISE lock_not_available; END'`];
        return [setName(sql)];
      },
    });
    expect(await written()).toBe(2);
  });

  it('reports no blocker until no step has been written for three seconds', async () => {
    const printed = watchErrors();
    let now = performance.now();
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
    await other`BEGIN; SELECT FROM branded_phone_numbers WHERE phone_number = '+13' FOR UPDATE`.simple();
    add(['+11', '+12', '+13'], 5000);
    let attempts = 0;
    await runSteps(database.url, spool, {
      ...settingNames,
      lock(sql, waits) {
        if (++attempts === 12) void other`COMMIT`.execute();
        return lockToWrite(sql, waits);
      },
      onWritten: () => (now += 2000),
    });
    clock.mockRestore();
    expect(attempts).toBeGreaterThanOrEqual(12);
    expect([await written(), printed.mock.calls]).toEqual([3, []]);
  });

  it('fails if its rows can’t be read any more', async () => {
    add(manyKeys(40_000));
    const unreadable = spool;
    spool = new Spool();
    const onWritten = vi.fn().mockImplementationOnce(() => unreadable.close());
    const steps: Steps = { lock: () => [], write: (sql) => [sql`SELECT`], onWritten };
    await expect(runSteps(database.url, unreadable, steps)).rejects.toThrow('EBADF');
  });

  it('whose connection broke is repeated before new rows', async () => {
    add(['+11', '+12', '+13'], 5000);
    const order: string[] = [];
    let attempts = 0;
    await runSteps(database.url, spool, {
      lock: () => [],
      write: (sql) => [++attempts === 1 ? sql`SELECT pg_terminate_backend(pg_backend_pid())` : sql`SELECT`],
      onWritten: (rows) => order.push(...rows.map(keyOf)),
    });
    expect(order).toEqual(['+11', '+12', '+13']);
  });

  it('gives up after a minute of reconnecting to a server that accepts no writes, which all jobs do', async () => {
    const clock = startClock();
    const printed = watchErrors();
    const proxy = await useProxy(database.url);
    // So that the jobs write at once.
    proxy.behave('slow', 20);
    add(manyKeys(20), 5000);
    const steps: Steps = {
      lock: () => [],
      write(sql) {
        clock.skipped += 2500;
        return [sql`SET LOCAL transaction_read_only = on`, sql`DELETE FROM branded_phone_numbers`];
      },
    };
    await expect(runSteps(proxy.through(database.url), spool, steps, { jobs: 4 })).rejects.toThrow(
      /read-only transaction/,
    );
    expect(clock.skipped).toBeGreaterThanOrEqual(60_000);
    expect(clock.skipped).toBeLessThanOrEqual(80_000);
    expect(printed.mock.calls).toEqual([]);
  });
});
