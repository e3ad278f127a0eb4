/** How large steps are, and what they do to other programs. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { Socket } from 'node:net';
import type { Sql } from 'postgres';
import { afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { Transaction } from '../../../src/database/connection.js';
import { codeOf } from '../../../src/database/errors.js';
import { lockToWriteOrListBusy } from '../../../src/operator/numbers/numberLocks.js';
import { keyOf } from '../../../src/operator/numbers/rows.js';
import { Spool } from '../../../src/operator/numbers/spool.js';
import { runSteps, type Steps } from '../../../src/operator/numbers/steps.js';
import { packageFolder } from '../../../src/packageFolder.js';
import { untilLockIsAwaited } from '../../support/connection.js';
import { type TestConnection as Database, inTransaction, useDatabase, usePool } from '../../support/database.js';
import { numberWith, write as writeNumbers } from '../../support/numbers.js';
import { useProxy } from '../../support/toxicProxy.js';
import { until } from '../../support/until.js';

const created = useDatabase();
let database: Database;
let other: Sql;
let spool: Spool;

beforeAll(() => {
  ({ drizzle: database, sql: other } = created);
});
beforeEach(async () => {
  spool = new Spool();
  await other`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
  await writeNumbers(
    database,
    ['+11', '+12', '+13', '+14'].map((phoneNumber) => numberWith({ phoneNumber })),
  );
});
afterEach(() => spool.close());

/** Adds rows with these keys, each of which concerns this many entries. */
const add = (keys: string[], entries = 0) => {
  for (const key of keys) spool.add(`${entries}\t${key}`);
};

const setName = async (sql: Transaction, phoneNumbers: string[]) => {
  await sql`UPDATE branded_phone_numbers SET internal_name = ${'Written'} WHERE phone_number = ANY (${phoneNumbers}::text[])`;
  return phoneNumbers;
};
const settingNames: Steps = {
  lockOrListBusy: lockToWriteOrListBusy,
  write: (sql, rows) => setName(sql, rows.map(keyOf)),
};
/** Takes this many seconds for each row. */
const settingNamesSlowly = (seconds: number): Steps => ({
  ...settingNames,
  async write(sql, rows) {
    await sql`SELECT pg_sleep(${rows.length * seconds})`;
    return setName(sql, rows.map(keyOf));
  },
});
const written = async () => (await other`SELECT FROM branded_phone_numbers WHERE internal_name = 'Written'`).length;

/** Lets the last statement of a step take this many seconds for each row, until the test ends. */
async function waitDeferred(seconds: number) {
  await other.unsafe(`
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(${seconds}); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER wait AFTER UPDATE ON branded_phone_numbers DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION wait()`);
  onTestFinished(async () => void (await other`DROP FUNCTION wait CASCADE`));
}

/** Returns how many milliseconds the test has skipped on this process's clock. */
function startClock() {
  const clock = { skipped: 0 };
  const now = performance.now.bind(performance);
  const reading = vi.spyOn(performance, 'now').mockImplementation(() => now() + clock.skipped);
  onTestFinished(() => reading.mockRestore());
  return clock;
}

describe('a lock of a number', () => {
  it('waits for the entries first, in the order of a program that changes an entry', async () => {
    await other`INSERT INTO carrier_statuses VALUES ('+11', 'AT&T', 'brandedCallerId', 'approved.optIn')`;
    await other`BEGIN; SELECT FROM carrier_statuses WHERE phone_number = '+11' FOR UPDATE`.simple();
    const locking = inTransaction(database.url, 'READ COMMITTED', (sql) => lockToWriteOrListBusy(sql, ['+11'], true));
    await untilLockIsAwaited(other, 'the lock waits');
    await other`SELECT FROM branded_phone_numbers WHERE phone_number = '+11' FOR UPDATE NOWAIT`;
    await other`COMMIT`;
    expect(await locking).toEqual([]);
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
    const sizes: number[] = [];
    await runSteps(database.url, spool, { ...settingNamesSlowly(0.25), onWritten: (count) => sizes.push(count) });
    expect(sizes).toEqual([1, 1, 1, 1]);
    expect(await written()).toBe(4);
  });

  it('is smaller after one that took too long', async () => {
    add(
      Array.from({ length: 600 }, (_, i) => `+${i + 1}`),
      20,
    );
    const steps = settingNamesSlowly(0.005);
    const write = vi.spyOn(steps, 'write');
    await runSteps(database.url, spool, steps);
    expect(write.mock.calls.filter(([, rows]) => rows.length > 60)).toHaveLength(1);
  });

  it('grows at most twofold, and does not shrink because of round trips to PostgreSQL', async () => {
    const clock = startClock();
    add(
      Array.from({ length: 800 }, (_, i) => `+${i + 1}`),
      20,
    );
    const sizes: number[] = [];
    await runSteps(database.url, spool, {
      ...settingNames,
      async write(_sql, rows) {
        // As if PostgreSQL were far away: every transaction takes that much longer.
        clock.skipped += 2000;
        return rows.map(keyOf);
      },
      onWritten: (count) => sizes.push(count),
    });
    const [first = 0, second = 0] = sizes;
    expect(second, sizes.join()).toBeGreaterThanOrEqual(first);
    // A row more or less fits into a step.
    for (const [i, size] of sizes.slice(1).entries()) expect(size).toBeLessThanOrEqual(2 * (sizes[i] ?? 0) + 2);
  });

  it.each(['', '?prepare=false'])('is not halved because PostgreSQL is far away%s', async (parameter) => {
    const proxy = await useProxy(created.url);
    const behind = usePool(proxy.through(created.url) + parameter);
    // Three round trips take longer than the time limit of a statement.
    proxy.behave('slow', 150);
    await waitDeferred(0.01);
    add(['+11', '+12', '+13', '+14']);
    const sizes: number[] = [];
    await runSteps(behind.url, spool, { ...settingNames, onWritten: (count) => sizes.push(count) });
    expect([sizes, await written()]).toEqual([[4], 4]);
  });

  it('waits for locks and runs a statement for half a second together', async () => {
    add(['+11', '+12']);
    const limits: number[] = [];
    await runSteps(database.url, spool, {
      ...settingNames,
      async write(sql, rows) {
        const [sum] = await sql`
          SELECT sum(setting::int)::int AS milliseconds FROM pg_settings WHERE name IN ('lock_timeout', 'statement_timeout')`;
        if (rows.length > 0) limits.push(sum?.milliseconds);
        return setName(sql, rows.map(keyOf));
      },
    });
    expect(limits).toEqual([500]);
  });

  it('is halved as well if its statements and what it deferred take too long together', async () => {
    add(['+11', '+12']);
    await waitDeferred(0.15);
    const sizes: number[] = [];
    await runSteps(database.url, spool, { ...settingNamesSlowly(0.15), onWritten: (count) => sizes.push(count) });
    expect(sizes).toEqual([1, 1]);
  });

  it.each([
    ['is retried after a few conflicts with other programs', 5, { code: undefined, attempts: 6, written: 1 }],
    ['gives up after twenty conflicts with other programs', 21, { code: '23505', attempts: 21, written: 0 }],
  ])('%s', async (_what, conflicts, outcome) => {
    add(['+11']);
    let attempts = 0;
    const running = runSteps(database.url, spool, {
      ...settingNames,
      async write(sql, rows) {
        if (rows.length > 0 && attempts++ < conflicts) await sql`DO 'BEGIN RAISE unique_violation; END'`;
        return setName(sql, rows.map(keyOf));
      },
    });
    const code = await running.then(() => undefined, codeOf);
    expect({ code, attempts, written: await written() }).toEqual(outcome);
  });

  it('gives way before PostgreSQL ends another program’s transaction because of a deadlock with it', async () => {
    add(['+11']);
    await other`BEGIN`;
    await other`SELECT FROM branded_phone_numbers WHERE phone_number = '+12' FOR UPDATE`;
    let updated: Promise<unknown> | undefined;
    await runSteps(database.url, spool, {
      ...settingNames,
      async write(sql, rows) {
        if (rows.length > 0 && !updated) {
          updated = (async () => {
            await other`UPDATE branded_phone_numbers SET internal_name = 'Other' WHERE phone_number = '+11'`;
            await other`COMMIT`;
          })();
          await untilLockIsAwaited(database.$client, 'the other program waits');
        }
        return setName(sql, rows.length > 0 ? ['+11', '+12'] : []);
      },
    });
    await updated;
    expect(await written()).toBe(2);
  });

  it('takes no new rows while many are postponed, since these are in memory', async () => {
    add(
      Array.from({ length: 200 }, (_, i) => `+${i + 1}`),
      2495,
    );
    const seen = new Set<string>();
    let calls = 0;
    let isFree = false;
    await runSteps(database.url, spool, {
      async lockOrListBusy(_sql, keys) {
        for (const key of keys) seen.add(key);
        if (++calls === 300) {
          expect(seen.size).toBeLessThan(60);
          isFree = true;
        }
        return isFree ? [] : keys.map((key) => ({ key }));
      },
      write: async (_sql, rows) => rows.map(keyOf),
    });
    expect(seen.size).toBe(200);
  });

  it('is ended by PostgreSQL if its command is suspended, and is then retried', async () => {
    add(['+11']);
    let attempts = 0;
    await runSteps(database.url, spool, {
      ...settingNames,
      async write(sql, rows) {
        // This process stands still until another one has written the row, which it can't while the step has its lock.
        if (rows.length > 0 && ++attempts === 1) {
          const program = `
            const sql = (await import('postgres')).default(${JSON.stringify(created.url)});
            await sql\`UPDATE branded_phone_numbers SET reporting_group = 'Another' WHERE phone_number = '+11'\`;
            await sql.end();`;
          execFileSync(process.execPath, ['--input-type=module', '--eval', program], {
            cwd: packageFolder,
            timeout: 30_000,
          });
        }
        return setName(sql, rows.map(keyOf));
      },
    });
    expect([attempts, await written()]).toEqual([2, 1]);
  });

  it.each([
    ['at once', false],
    ['after a wait for its row', true],
  ])('does not let PostgreSQL wait for a statement’s parameters while it holds locks: %s', async (_when, isBusy) => {
    add(['+11']);
    if (isBusy) await other`BEGIN; SELECT FROM branded_phone_numbers FOR UPDATE`.simple();
    const sent = vi.spyOn(Socket.prototype, 'write');
    await runSteps(database.url, spool, {
      ...settingNames,
      async lockOrListBusy(sql, keys, wait) {
        if (wait && keys.length > 0) await other`COMMIT`;
        return lockToWriteOrListBusy(sql, keys, wait);
      },
    });
    const messages = sent.mock.calls.map(([bytes]) => String(bytes));
    sent.mockRestore();
    const step = messages.slice(messages.findLastIndex((message) => message.includes('BEGIN')));
    expect(step.join()).toContain('+11');
    // The message Flush, after which the driver waits for the types of the parameters.
    expect(step.filter((message) => message.includes('H\0\0\0\x04'))).toEqual([]);
  });

  it.each(['is retried', 'ends after a signal'])('%s if its connection is cut silently', async (outcome) => {
    const proxy = await useProxy(created.url);
    const behind = usePool(proxy.through(created.url));
    add(['+11']);
    const stop = new AbortController();
    let attempts = 0;
    let [cutAt, endedAt] = [0, 0];
    const running = runSteps(
      behind.url,
      spool,
      {
        ...settingNames,
        async write(sql, rows) {
          if (rows.length > 0 && ++attempts === 1) {
            proxy.forgetConnections();
            cutAt = performance.now();
            if (outcome === 'ends after a signal') stop.abort(new Error('stopped'));
          }
          return setName(sql, rows.map(keyOf));
        },
      },
      { signal: stop.signal },
    ).finally(() => (endedAt = performance.now()));
    if (outcome === 'is retried') {
      await running;
      expect([attempts, await written()]).toEqual([2, 1]);
    } else {
      await expect(running).rejects.toThrow('stopped');
      // Before the connection is found to be dead, which takes 15 seconds.
      expect(endedAt - cutAt).toBeLessThan(6000);
    }
  });

  it.runIf(process.platform === 'linux')('lets the server probe its connection within 10 seconds', async () => {
    add(['+11']);
    let hundredths = Number.POSITIVE_INFINITY;
    await runSteps(database.url, spool, {
      ...settingNames,
      async write(sql, rows) {
        const [ports] = await sql`SELECT inet_server_port() AS server, inet_client_port() AS client`;
        const portOf = (name: string) => ports?.[name].toString(16).toUpperCase().padStart(4, '0');
        // The server's socket: its addresses, state, queues, and a timer of the kind 2 (keepalive) with its remaining time.
        const socket = new RegExp(`\\w+:${portOf('server')} \\w+:${portOf('client')} \\S+ \\S+ 02:(\\w+)`);
        await until(() => {
          const [, time] = socket.exec(readFileSync('/proc/net/tcp', 'latin1')) ?? [];
          if (time) hundredths = Number.parseInt(time, 16);
          return time !== undefined;
        });
        return setName(sql, rows.map(keyOf));
      },
    });
    expect(hundredths).toBeLessThanOrEqual(1000);
  });

  it('needs no connection that was opened before', async () => {
    const proxy = await useProxy(created.url);
    const behind = usePool(proxy.through(created.url));
    await behind.$client`SELECT`;
    proxy.forgetConnections();
    add(['+11']);
    await runSteps(behind.url, spool, settingNames);
    expect(await written()).toBe(1);
  });

  it.each([
    ['is written once PostgreSQL can be reached', false],
    ['ends after a signal, although PostgreSQL can’t be reached', true],
  ])('%s', async (_outcome, endsBySignal) => {
    const proxy = await useProxy(created.url);
    const behind = usePool(proxy.through(created.url));
    proxy.behave('refusing');
    add(['+11']);
    const stop = new AbortController();
    const running = runSteps(behind.url, spool, settingNames, { signal: stop.signal });
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
      async write(sql, rows) {
        if (rows.length === 0) return [];
        const failure = failures[attempts++];
        clock.skipped += 40_000;
        if (failure === 'outage') await sql`SET LOCAL transaction_read_only = on`;
        if (failure === 'a lock was not free') await sql`DO 'BEGIN RAISE lock_not_available; END'`;
        return setName(sql, rows.map(keyOf));
      },
    });
    expect(await written()).toBe(2);
  });

  it('reports no blocker until no step has been written for three seconds', async () => {
    const printed = vi.spyOn(console, 'error').mockReturnValue();
    let now = performance.now();
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
    await other`BEGIN; SELECT FROM branded_phone_numbers WHERE phone_number = '+13' FOR UPDATE`.simple();
    add(['+11', '+12', '+13'], 5000);
    let waits = 0;
    await runSteps(database.url, spool, {
      ...settingNames,
      async lockOrListBusy(sql, keys, wait) {
        if (wait && keys.length > 0 && ++waits === 10) await other`COMMIT`;
        return lockToWriteOrListBusy(sql, keys, wait);
      },
      onWritten: () => (now += 2000),
    });
    clock.mockRestore();
    expect([waits, await written(), printed.mock.calls]).toEqual([10, 3, []]);
    printed.mockRestore();
  });

  it('gives up after a minute of reconnecting to a server that accepts no writes', async () => {
    const clock = startClock();
    add(['+19']);
    const writing = runSteps(database.url, spool, {
      lockOrListBusy: async () => [],
      async write(sql) {
        clock.skipped += 20_000;
        await sql`SET LOCAL transaction_read_only = on`;
        await sql`DELETE FROM branded_phone_numbers`;
        return [];
      },
    });
    await expect(writing).rejects.toThrow(/read-only transaction/);
    expect(clock.skipped).toBe(60_000);
  });
});

describe('the connections of all jobs', () => {
  it('are not opened if there are too few of them left, which other programs need', async () => {
    add(['+11']);
    const opened = vi.spyOn(Socket.prototype, 'connect');
    const running = runSteps(database.url, spool, settingNames, { jobs: 1000 });
    await expect(running).rejects.toThrow(/has \d+ free connections, but --jobs is 1000/);
    const count = opened.mock.calls.length;
    opened.mockRestore();
    expect(count).toBeLessThan(5);
  });
});
