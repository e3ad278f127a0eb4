/** Upgrades that meet locks for longer than a minute, or that are interrupted at any message, or far away. */
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { failureOf } from '../../src/database/errors.js';
import { migrateDatabase } from '../../src/database/migrations.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import { useCommand } from '../support/command.js';
import { connectTo, whileLocked } from '../support/connection.js';
import { createDatabase } from '../support/database.js';
import { startPostgres } from '../support/postgresServer.js';
import { endProcess } from '../support/process.js';
import { freshSeed } from '../support/seed.js';
import { openToxicProxy, type ToxicProxy } from '../support/toxicProxy.js';
import { repeat } from '../support/until.js';
import releases from './releases.json' with { type: 'json' };

const command = useCommand();
const migrate = (url: string) => command.start(['migrate'], { DATABASE_URL: url });

/** Creates a database as a release left it, with some rows. */
async function createReleased(version: '1.0.0' | '1.3.0'): Promise<string> {
  const url = await createDatabase({ isEmpty: true });
  const sql = connectTo(url);
  for (const tag of Object.keys(releases[version].migrations)) {
    await sql.unsafe(await readFile(`drizzle/${tag}.sql`, 'utf8'));
  }
  await sql.unsafe(`
    CREATE SCHEMA drizzle;
    CREATE TABLE drizzle.__drizzle_migrations (id serial PRIMARY KEY, hash text NOT NULL, created_at bigint)`);
  for (const hash of Object.values(releases[version].migrations)) {
    await sql`INSERT INTO drizzle.__drizzle_migrations (hash, created_at) VALUES (${hash}, 0)`;
  }
  await sql.unsafe(await readFile('test/database/releasedRows.sql', 'utf8'));
  await sql.end();
  return url;
}

/** Returns the names of all migrations. */
async function readTags(): Promise<string[]> {
  const { entries } = JSON.parse(await readFile('drizzle/meta/_journal.json', 'utf8'));
  return entries.map(({ tag }: { tag: string }) => tag);
}

/** Returns the text of all that migrations create, and the hashes that they record. */
async function describeSchema(url: string): Promise<unknown[]> {
  const sql = connectTo(url);
  const objects = await sql.unsafe(`
    WITH relation AS (SELECT * FROM pg_class WHERE relnamespace = 'public'::regnamespace)
    SELECT relname AS name, relkind::text AS text, reloptions::text AS settings FROM relation
    UNION ALL SELECT relname || '.' || attname, format_type(atttypid, atttypmod), attnotnull || ' ' || coalesce(pg_get_expr(adbin, adrelid), '')
    FROM relation JOIN pg_attribute ON attrelid = relation.oid LEFT JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum)
    WHERE attnum > 0 AND relkind = 'r'
    UNION ALL SELECT relname, pg_get_indexdef(indexrelid), indisvalid::text FROM pg_index JOIN relation ON indexrelid = relation.oid
    UNION ALL SELECT conname, pg_get_constraintdef(oid), convalidated::text FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT proname, pg_get_functiondef(oid), proacl::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT tgname, pg_get_triggerdef(oid), tgenabled::text FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT typname, enumlabel, enumsortorder::text FROM pg_enum JOIN pg_type ON enumtypid = pg_type.oid
    ORDER BY name, text`);
  const records = await sql`SELECT hash FROM drizzle.__drizzle_migrations ORDER BY id`;
  await sql.end();
  return [...objects, ...records];
}

it.concurrent('a migration waits for a standby that is away for longer than a minute', async ({ onTestFinished }) => {
  const server = await startPostgres();
  onTestFinished(() => server.remove());
  const sql = connectTo(server.url, { connection: { synchronous_commit: 'local' } });
  await sql`ALTER SYSTEM SET synchronous_standby_names = 'replica'`;
  await sql`SELECT pg_reload_conf()`;
  const migrating = migrateDatabase(server.url, migrationsFolder);
  const ended = migrating.then(String, String);
  expect(await Promise.race([ended, sleep(62_000)])).toBeUndefined();
  await sql`ALTER SYSTEM RESET synchronous_standby_names`;
  await sql`SELECT pg_reload_conf()`;
  expect((await migrating).applied).toEqual(await readTags());
  await sql.end();
});

describe.concurrent('a migration whose lock another program holds for longer than a minute', () => {
  it.each([
    ['0003_steps', 'LOCK carrier_statuses IN ACCESS SHARE MODE'],
    ['0004_guards', 'LOCK items IN SHARE UPDATE EXCLUSIVE MODE'],
    ['0003_steps', 'SELECT pg_advisory_xact_lock(7245983)'],
  ])(
    'is rolled back, names the program, and is applied by the next attempt: %s beside %s',
    async (tag, lock) => {
      const url = await createReleased('1.0.0');
      const { code, stdout, stderr } = await whileLocked(url, lock, () => migrate(url).finished);
      const blocker = 'process \\d+, postgres, postgres.js, idle in transaction, since [-0-9: +]+';
      expect(stderr).toMatch(
        new RegExp(
          `^waiting for transactions of other programs to end:\\n  ${blocker}\\n` +
            `a migration waited for a minute, and was rolled back: run this again once these have ended: ${blocker}\\n$`,
        ),
      );
      expect([code, stdout]).toEqual([75, '']);
      const next = await migrate(url).finished;
      expect(next.stdout).toMatch(new RegExp(`^applied ${tag}\n(applied \\d{4}_\\w+\n)*the database is up to date\n$`));
      expect(next.code).toBe(0);
    },
    180_000,
  );
});

/** An upgrade that was started. */
interface Upgrade {
  interrupt(): unknown;
  /** Resolves once it has ended by itself. */
  ended: Promise<unknown>;
  /** Lets it end, and waits for that; fails if it should have succeeded. */
  end(): Promise<unknown>;
}

const seed = freshSeed();
/** Upgrades take minutes of CPU time; so, except before a release, each way has every eighth message, by the seed. */
const step = process.env.RELEASE === '1' ? 1 : 8;

const upgrades: Record<string, (url: string, proxy: ToxicProxy) => Upgrade> = {
  'cut off silently'(url, proxy) {
    const ended = migrateDatabase(proxy.through(url), migrationsFolder).catch(() => {});
    return { interrupt: () => proxy.forgetConnections(), ended, end: () => proxy.close().then(() => ended) };
  },
  'ended by PostgreSQL'(url, proxy) {
    const sql = connectTo(url);
    const interrupt = () =>
      sql`
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'branded%'`.execute();
    // Only what follows the check of the schema is retried.
    const ended = migrateDatabase(proxy.through(url), migrationsFolder, { retriesOutage: true }).catch((error) =>
      expect(failureOf(error)).toBe('unreachable'),
    );
    return { interrupt, ended, end: () => ended.finally(() => sql.end()) };
  },
  suspended(url, proxy) {
    const { child, finished } = migrate(proxy.through(url));
    const end = async () => {
      child.kill('SIGCONT');
      expect(await finished).toMatchObject({ code: 0 });
    };
    return { interrupt: () => child.kill('SIGSTOP'), ended: finished, end };
  },
  killed(url, proxy) {
    const { child, finished } = migrate(proxy.through(url));
    return { interrupt: () => child.kill('SIGKILL'), ended: finished, end: () => endProcess(child) };
  },
};

describe.concurrent.each(['1.0.0', '1.3.0'] as const)('an upgrade from %s', (version) => {
  it.each(Object.keys(upgrades))(
    'keeps no lock if it is %s at any message, and is completed by the next one',
    async (how) => {
      const fresh = await describeSchema(await createDatabase());
      const first = 1 + ((seed + Object.keys(upgrades).indexOf(how)) % step);
      for (let message = first, isInterrupted = true; isInterrupted; message += step) {
        const url = await createReleased(version);
        const proxy = await openToxicProxy(Number(new URL(url).port));
        const { interrupt, ended, end } = upgrades[how]?.(url, proxy) ?? expect.fail();
        let interruption: unknown;
        const interrupted = new Promise<boolean>((resolve) => {
          proxy.afterMessages(message, () => {
            interruption = interrupt();
            resolve(true);
          });
        });
        isInterrupted = await Promise.race([interrupted, ended.then(() => false)]);
        await interruption;
        const tables = 'business_profiles, api_keys, items, carrier_statuses';
        await whileLocked(
          url,
          `SET LOCAL lock_timeout = '5s'; LOCK ${tables} IN ACCESS EXCLUSIVE MODE`,
          async () => {},
        );
        await migrateDatabase(url, migrationsFolder);
        await end();
        expect(await describeSchema(url), `message ${message}`).toEqual(fresh);
        await proxy.close();
      }
    },
    600_000,
  );

  it('from 300 ms away, twice at once, keeps no page waiting for a second', async () => {
    const url = await createReleased(version);
    const proxy = await openToxicProxy(Number(new URL(url).port));
    proxy.behave('slow', 600);
    const sql = connectTo(url, { connection: { statement_timeout: 1000 } });
    const end = repeat(1, () => sql`SELECT FROM items, business_profiles, api_keys`);
    const upgrading = [1, 2].map(() => migrateDatabase(proxy.through(url), migrationsFolder));
    const applied = (await Promise.all(upgrading)).flatMap((upgrade) => upgrade.applied);
    await end();
    expect(applied.sort()).toEqual((await readTags()).slice(Object.keys(releases[version].migrations).length));
    expect(await describeSchema(url)).toEqual(await describeSchema(await createDatabase()));
    await Promise.all([sql.end(), proxy.close()]);
  });
});
