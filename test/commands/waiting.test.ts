/** Commands beside other writers: they begin in their turn, lock nobody out once they have ended, and say for whom they wait. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Sql } from 'postgres';
import { beforeEach, describe, expect, it } from 'vitest';
import { connectTo } from '../connection.js';
import { numberWith, PROFILES } from '../numbers.js';
import { startPostgres } from '../postgresServer.js';
import { until } from '../until.js';
import { useCommand } from './command.js';

const command = useCommand();
const LINE = JSON.stringify(numberWith({ phoneNumber: '+19' }));
const OTHERS = 24;

/** Until a session of a command runs, or last ran, a statement like this one. */
const untilAsked = (sql: Sql, statement: string, waits = false) =>
  until(async () => {
    await sql`SELECT pg_stat_clear_snapshot()`;
    const rows = await sql`
      SELECT FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE ${`%${statement}%`}
        AND state = ${waits ? 'active' : 'idle'} AND (wait_event_type = 'Lock') = ${waits}`;
    return rows.length > 0;
  }, statement);

async function withSession(use: (sql: Sql) => Promise<void>): Promise<void> {
  const sql = connectTo(command.databaseUrl);
  await use(sql);
  await sql.end();
}

beforeEach(() =>
  withSession(async (sql) => {
    await sql`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
    for (const { id } of PROFILES) await sql`INSERT INTO business_profiles VALUES (${id}, 'Before', 'approved')`;
    await sql`
      INSERT INTO branded_phone_numbers (phone_number, business_profile_id)
      SELECT '+1' || i, ${PROFILES[0]?.id ?? ''} FROM generate_series(1, ${OTHERS}) AS i`;
    await sql`
      INSERT INTO carrier_statuses
      SELECT phone_number, 'AT&T', 'brandedCallerId', 'approved.optIn' FROM branded_phone_numbers`;
  }),
);

describe('a command', () => {
  it('begins beside many writers of short transactions', async () => {
    let isOver = false;
    const writers = Array.from({ length: OTHERS }, (_, i) =>
      withSession(async (sql) => {
        while (!isOver) {
          await sql.begin(async (transaction) => {
            await transaction`SELECT FROM branded_phone_numbers WHERE phone_number = ${`+1${i + 1}`} FOR UPDATE`;
            await transaction`UPDATE carrier_statuses SET carrier = 'AT&T' WHERE phone_number = ${`+1${i + 1}`}`;
          });
        }
      }),
    );
    expect(await command.run(['import', '-'], LINE)).toMatchObject({ code: 0 });
    isOver = true;
    await Promise.all(writers);
  });

  it('begins beside an autovacuum', async () => {
    const server = await startPostgres({ autovacuum_naptime: '1s' });
    const sql = connectTo(server.url);
    const run = (...args: string[]) => command.run(args, LINE, { environment: { DATABASE_URL: server.url } });
    await run('migrate');
    await run('import', '-');
    await sql`
      ALTER TABLE branded_phone_numbers SET (
        autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_limit = 1,
        autovacuum_vacuum_cost_delay = 100)`;
    await sql`
      INSERT INTO branded_phone_numbers (phone_number, business_profile_id)
      SELECT '+1' || i, business_profile_id FROM branded_phone_numbers, generate_series(100001, 120000) AS i`;
    await sql`UPDATE branded_phone_numbers SET internal_name = 'New' WHERE phone_number LIKE '%0'`;
    const vacuums = () => sql`
      SELECT FROM pg_stat_activity WHERE backend_type = 'autovacuum worker' AND query LIKE '%branded_phone_numbers'`;
    await until(async () => (await vacuums()).length > 0, 'an autovacuum runs', 30_000);
    expect(await run('import', '-')).toMatchObject({ code: 0 });
    await sql.end();
    await server.remove();
  });

  it.each([
    ['import line.ndjson', 'SIGTERM', 'SET CONSTRAINTS'],
    ['delete gone.txt', 'SIGINT', 'commit'],
    ['check', 'SIGKILL', 'WITH batch'],
  ] as const)('soon keeps nobody out: %s, which %s ends while it writes', async (line, signal, statement) => {
    await writeFile(join(command.folder, 'line.ndjson'), LINE);
    await writeFile(join(command.folder, 'gone.txt'), '+11');
    await withSession(async (sql) => {
      await sql`BEGIN`;
      // The command waits for this in the middle of its writing.
      await sql`LOCK TABLE postings IN ACCESS EXCLUSIVE MODE`;
      const { child, finished } = command.start(line.split(' '), { DATABASE_URL: command.databaseUrl });
      await untilAsked(sql, statement, true);
      child.kill(signal);
      await finished;
      await until(async () => {
        await sql`SELECT pg_stat_clear_snapshot()`;
        const others = await sql`
          SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE ${`% ${child.pid}`}`;
        return others.length === 0;
      }, 'its statement ends');
      await sql`LOCK TABLE branded_phone_numbers IN EXCLUSIVE MODE NOWAIT`;
      await sql`COMMIT`;
      expect(await sql`SELECT FROM items`).toHaveLength(OTHERS);
    });
  });

  it('says once for whom it waits', () =>
    withSession(async (sql) => {
      const [own] = await sql`SELECT pg_backend_pid() AS pid, current_user AS role`;
      await sql`SET application_name = 'a writer'`;
      await sql`BEGIN`;
      await sql`UPDATE carrier_statuses SET carrier = 'AT&T' WHERE phone_number = '+11'`;
      const checking = command.run(['check']);
      await untilAsked(sql, 'pg_blocking_pids');
      await sql`COMMIT`;
      const { code, stderr } = await checking;
      expect([code, stderr]).toEqual([
        0,
        expect.stringMatching(
          new RegExp(
            `^waiting for other writers of branded_phone_numbers:\\n  process ${own?.pid}, ${own?.role}, a writer, idle in transaction, since [-0-9: +]+, holds \\w+Lock( and \\w+Lock)*\\n$`,
          ),
        ),
      ]);
    }));

  it('says what a deadlock with a writer was', () =>
    withSession((sql) =>
      withSession(async (third) => {
        // Only the command looks for deadlocks.
        await sql`SET deadlock_timeout = '1h'`;
        await third`BEGIN`;
        await third`SELECT FROM business_profiles FOR UPDATE`;
        await sql`BEGIN`;
        await sql`SELECT FROM carrier_statuses FOR UPDATE`;
        const line = JSON.stringify(numberWith({ phoneNumber: '+11' }));
        const importing = command.run(['import', '-'], line);
        await untilAsked(sql, 'INSERT INTO business_profiles', true);
        const writing = sql`UPDATE carrier_statuses SET carrier = 'AT&T'`.execute();
        await untilAsked(third, 'UPDATE carrier_statuses', true);
        await third`COMMIT`;
        const { code, stderr } = await importing;
        expect([code, stderr]).toEqual([1, expect.stringMatching(/^PostgreSQL ended this, .* run this again\. .*\n$/)]);
        await writing;
        await sql`COMMIT`;
      }),
    ));
});
