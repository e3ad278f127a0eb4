/**
 * Upgrades: `migrate` upgrades a database of any release and keeps its data.
 *
 * releases.json has the migrations of each release with the SHA-256 of each file. A release adds its own; migrations of
 * earlier releases never change.
 */
import { createHash } from 'node:crypto';
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { migrate } from 'drizzle-orm/postgres-js/migrator';
import type { Sql } from 'postgres';
import { beforeEach, describe, expect, it } from 'vitest';
import { failureOf } from '../../src/database/errors.js';
import { migrateDatabase, prepareSchemaCheck } from '../../src/database/migrations.js';
import { deriveAll } from '../../src/operator/numbers/check.js';
import { importNumbers } from '../../src/operator/numbers/import.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import { UserError } from '../../src/userError.js';
import { runOn } from '../support/command.js';
import { useConnection, whileLocked } from '../support/connection.js';
import { createDatabase, type TestConnection as Database, usePool } from '../support/database.js';
import { expectDerivedToAgree, items } from '../support/derived.js';
import { entryWith, numberWith } from '../support/numbers.js';
import { useTemporaryFolder } from '../support/temporaryFolder.js';
import { useProxy } from '../support/toxicProxy.js';
import { until } from '../support/until.js';
import releases from './releases.json' with { type: 'json' };

interface Journal {
  entries: { idx: number; version: string; when: number; tag: string; breakpoints: boolean }[];
}

const readJournal = async (folder: string): Promise<Journal> =>
  JSON.parse(await readFile(join(folder, 'meta', '_journal.json'), 'utf8'));

const folder = useTemporaryFolder('migrations-');
let database: Database;
let url: string;
const sql = () => database.$client as unknown as Sql;

/** Connects the current test to a new database, by default a migrated one, which takes less time than to migrate it. */
async function connect(options: { isEmpty?: boolean } = {}): Promise<void> {
  url = await createDatabase(options);
  database = usePool(url);
}

beforeEach(() => connect());

/** Makes a folder of the first `count` migrations, by default all, and of the `added` ones, each of a statement. */
async function folderOf(name: string, added: string[], count = Number.POSITIVE_INFINITY): Promise<string> {
  const path = join(folder.path, name);
  await cp(migrationsFolder, path, { recursive: true });
  const { entries, ...journal } = await readJournal(path);
  const kept = entries.slice(0, count);
  for (const [i, statement] of added.entries()) {
    const tag = `added_${i}`;
    await writeFile(join(path, `${tag}.sql`), statement);
    kept.push({ idx: kept.length, version: '7', when: Date.UTC(2100, 0, 1) + i, tag, breakpoints: true });
  }
  await writeFile(join(path, 'meta', '_journal.json'), JSON.stringify({ ...journal, entries: kept }));
  return path;
}

const nextVersion = () =>
  folderOf('next', [
    'ALTER TABLE branded_phone_numbers ADD COLUMN next_name text',
    `UPDATE branded_phone_numbers SET next_name = internal_name, reporting_group = 'Next'`,
  ]);

const lockingVersion = () => folderOf('locking', ['ALTER TABLE items ADD COLUMN next_name text']);

const importOne = (phoneNumber: string) => {
  const carrierStatuses = [entryWith('AT&T', 'brandedCallerId', 'rejected.optIn')];
  return importNumbers(database.url, Readable.from([JSON.stringify(numberWith({ phoneNumber, carrierStatuses }))]));
};

async function expectAllToBeRight(phoneNumbers: string[]): Promise<void> {
  expect((await items(sql())).map(({ phoneNumber }) => phoneNumber)).toEqual(phoneNumbers);
  await expectDerivedToAgree(sql());
  expect(await deriveAll(database.url, { keep: false })).toEqual([]);
}

it('each migration is newer than the previous one: versions up to 1.1.0 skip any other', async () => {
  const times = (await readJournal(migrationsFolder)).entries.map(({ when }) => when);
  expect(times).toEqual([...new Set(times)].sort((a, b) => a - b));
});

it('each release has the migrations with which it was released', async () => {
  const { entries } = await readJournal(migrationsFolder);
  for (const [version, { migrations }] of Object.entries(releases)) {
    const tags = Object.keys(migrations);
    expect([version, entries.slice(0, tags.length).map(({ tag }) => tag)]).toEqual([version, tags]);
    for (const [tag, hash] of Object.entries(migrations)) {
      const file = await readFile(join(migrationsFolder, `${tag}.sql`));
      expect(
        createHash('sha256').update(file).digest('hex'),
        `drizzle/${tag}.sql was changed: add a migration instead`,
      ).toBe(hash);
    }
  }
});

/** The numbers of migrations that releases have; some have those of the previous one. */
const counts = new Set(Object.values(releases).map(({ migrations }) => Object.keys(migrations).length));

it.each([...counts])('a database with the %i migrations of a release is upgraded, with its data', async (count) => {
  await connect({ isEmpty: true });
  await migrateDatabase(url, await folderOf(`first ${count}`, [], count));
  await sql().unsafe(await readFile('test/database/releasedRows.sql', 'utf8'));
  const before = await items(sql());
  await migrateDatabase(url, migrationsFolder);
  expect(await items(sql())).toMatchObject(before);
  await importOne('+19');
  await expectAllToBeRight([...before.map(({ phoneNumber }) => phoneNumber), '+19']);
});

it('a migration may use a value that the previous one has added', async () => {
  const next = await folderOf('value', [
    "ALTER TYPE feature ADD VALUE 'nextFeature'",
    'CREATE FUNCTION next_feature() RETURNS feature LANGUAGE sql RETURN CAST($$nextFeature$$ AS feature)',
  ]);
  await migrateDatabase(url, next);
  expect((await sql()`SELECT next_feature() AS value`)[0]?.value).toBe('nextFeature');
});

it.each<[string, (next: string) => Promise<unknown>]>([
  ['after', (next) => migrateDatabase(url, next).then(() => migrateDatabase(url, migrationsFolder))],
  ['beside', (next) => Promise.all([migrationsFolder, next].map((migrations) => migrateDatabase(url, migrations)))],
])('an older version that migrates %s a newer one leaves the newer schema, and can be used', async (_when, migrate) => {
  await connect({ isEmpty: true });
  const next = await nextVersion();
  await migrate(next);
  expect(await sql()`SELECT FROM drizzle.__drizzle_migrations`).toHaveLength((await readJournal(next)).entries.length);
  await importOne('+18');
  await expectAllToBeRight(['+18']);
});

describe('a database of which only one schema was restored', () => {
  it.each(['DROP SCHEMA drizzle CASCADE', 'DELETE FROM drizzle.__drizzle_migrations'])(
    'is not changed if the record of its migrations is missing, which is reported: %s',
    async (loss) => {
      await importOne('+18');
      await sql().unsafe(loss);
      const isMissing = async () => (await sql()`SELECT to_regnamespace('drizzle') IS NULL AS missing`)[0]?.missing;
      const before = await isMissing();
      const migrating = migrateDatabase(url, migrationsFolder, { retriesOutage: true });
      await expect(migrating).rejects.toThrow(
        /^The schema public has \w+, but .* no record .*pg_dump -n public -n drizzle/,
      );
      await expect(migrating).rejects.toBeInstanceOf(UserError);
      expect(await isMissing()).toBe(before);
      await expectAllToBeRight(['+18']);
    },
  );

  it('can be migrated after the statement in the error message if its tables are missing', async () => {
    await recordAnother();
    await sql()`DROP SCHEMA public CASCADE`;
    await sql()`CREATE SCHEMA public`;
    const reason = await migrateDatabase(url, migrationsFolder).catch(({ message }) => message);
    expect(reason).toMatch(/^The schema drizzle has a record .*: DELETE FROM drizzle/);
    await sql().unsafe(/DELETE.*/.exec(reason)?.[0] ?? '');
    expect(await hashes()).toEqual([ANOTHER]);
    await migrateDatabase(url, migrationsFolder);
    await importOne('+18');
    await expectAllToBeRight(['+18']);
  });
});

const ANOTHER = 'the hash of another program';

const hashes = async () =>
  (await sql()`SELECT hash FROM drizzle.__drizzle_migrations ORDER BY id`).map(({ hash }) => hash);

/** Records a migration of another program, newer than all of ours, as Drizzle does. */
const recordAnother = (client: Pick<Sql, 'unsafe'> = sql()) =>
  client.unsafe(
    `INSERT INTO drizzle.__drizzle_migrations (hash, created_at) VALUES ('${ANOTHER}', ${Date.UTC(2200, 0)})`,
  );

describe('a database in which another program records its migrations in the same table', () => {
  it('is migrated if that program was first', async () => {
    await connect({ isEmpty: true });
    await sql().unsafe(`CREATE SCHEMA drizzle;
      CREATE TABLE drizzle.__drizzle_migrations (id serial PRIMARY KEY, hash text NOT NULL, created_at bigint)`);
    await recordAnother();
    await migrateDatabase(url, migrationsFolder);
    expect((await hashes())[0]).toBe(ANOTHER);
    await importOne('+18');
    await expectAllToBeRight(['+18']);
  });

  it('is upgraded, and outdated until then, although the newest record is of that program', async () => {
    await recordAnother();
    const next = await nextVersion();
    expect(await prepareSchemaCheck(next)(database)).toMatchObject({ reason: expect.stringContaining('older') });
    expect(await migrateDatabase(url, next)).toEqual({ role: 'primary', applied: ['added_0', 'added_1'] });
    expect(await prepareSchemaCheck(next)(database)).toBeUndefined();
    await recordAnother();
    expect((await hashes()).filter((hash) => hash === ANOTHER)).toHaveLength(2);
  });

  it('is upgraded while that program adds a record, which may take it long', async () => {
    await sql().begin(async (transaction) => {
      await recordAnother(transaction);
      await migrateDatabase(url, await nextVersion());
    });
    expect((await hashes()).at(-3)).toBe(ANOTHER);
  });

  it('lets that program apply older migrations if it records them in another table', async () => {
    const { entries, ...journal } = await readJournal(migrationsFolder);
    const [oldest = expect.fail()] = entries;
    const other = join(folder.path, 'other');
    await mkdir(join(other, 'meta'), { recursive: true });
    const entry = { ...oldest, tag: 'other', when: oldest.when - 1 };
    await writeFile(join(other, 'meta', '_journal.json'), JSON.stringify({ ...journal, entries: [entry] }));
    await writeFile(join(other, 'other.sql'), 'CREATE TABLE of_another_program ()');
    const find = async () => (await sql()`SELECT to_regclass('of_another_program') AS found`)[0]?.found;
    await migrate(database, { migrationsFolder: other });
    expect(await find()).toBeNull();
    await migrate(database, { migrationsFolder: other, migrationsTable: 'other_migrations' });
    expect(await find()).toBe('of_another_program');
  });
});

it('is upgraded after logical replication, which copies no sequence', async () => {
  await sql()`SELECT setval('drizzle.__drizzle_migrations_id_seq', 1, false)`;
  await migrateDatabase(url, await nextVersion());
  await recordAnother();
  expect((await hashes()).at(-1)).toBe(ANOTHER);
});

describe('a migration that waits for a lock', () => {
  const LOCK = 'LOCK items IN ROW EXCLUSIVE MODE';

  /** Returns the processes of the sessions that wait. */
  const waiting = async () => {
    const rows = await sql()<{ pid: number }[]>`
      SELECT pid FROM pg_stat_activity
      WHERE (wait_event_type, wait_event) = ('Lock', 'relation') AND datname = current_database()`;
    return rows.map(({ pid }) => pid);
  };

  it('keeps other programs waiting for half a second at a time, and names who is in the way', async () => {
    await importOne('+18');
    const next = await lockingVersion();
    let found: string[] = [];
    let migrating: Promise<unknown> | undefined;
    await whileLocked(url, LOCK, async () => {
      const onBlocked = ({ blockers }: { blockers: string[] }) => (found = blockers);
      migrating = migrateDatabase(url, next, { onBlocked }).catch((error: unknown) => error);
      await until(() => found.length > 0, 'it names who is in the way');
      // Pages and other programs have this time limit.
      const other = useConnection(url, { connection: { statement_timeout: 1000 } });
      for (const end = performance.now() + 3000; performance.now() < end; await sleep(20)) {
        await other`SELECT FROM items JOIN business_profiles ON business_profiles.id = business_profile_id`;
        await other`UPDATE carrier_statuses SET created_at = created_at`;
      }
    });
    expect(await migrating).toEqual({ role: 'primary', applied: ['added_0'] });
    expect(found).toEqual([expect.stringMatching(/^process \d+, postgres, .*idle in transaction, since /)]);
  });

  it.each([
    ['goes on', true],
    ['ends with an error that serve waits for', false],
  ])('%s if PostgreSQL ends its connection', async (_what, retriesOutage) => {
    const next = await lockingVersion();
    let migrating: Promise<unknown> | undefined;
    await whileLocked(url, LOCK, async () => {
      migrating = migrateDatabase(url, next, { retriesOutage }).catch((error: unknown) => error);
      let ended: number[] = [];
      const isWaiting = async () => {
        ended = await waiting();
        return ended.length > 0;
      };
      await until(isWaiting, 'it waits');
      await sql()`SELECT pg_terminate_backend(pid) FROM unnest(${ended}::int[]) AS pid`;
      const waitsAgain = async () => (await waiting()).some((pid) => !ended.includes(pid));
      if (retriesOutage) await until(waitsAgain, 'it waits again');
    });
    const outcome = await migrating;
    if (retriesOutage) expect(outcome).toMatchObject({ role: 'primary' });
    else expect(failureOf(outcome)).toBe('unreachable');
  });

  it('keeps no lock once it has its own, although it is cut off silently', async () => {
    const next = await lockingVersion();
    const proxy = await useProxy(url);
    let migrating: Promise<unknown> | undefined;
    await whileLocked(url, LOCK, async () => {
      migrating = migrateDatabase(proxy.through(url), next).catch(() => {});
      await until(async () => (await waiting()).length > 0, 'it waits');
      proxy.forgetConnections();
    });
    await whileLocked(url, `SET LOCAL lock_timeout = '5s'; LOCK items IN ACCESS EXCLUSIVE MODE`, async () => {});
    expect(await migrateDatabase(url, next)).toMatchObject({ role: 'primary' });
    await proxy.close();
    await migrating;
  });
});

it('migrate names the migrations that it applied', async () => {
  await connect({ isEmpty: true });
  const migrate = () => runOn(url, ['migrate']);
  const { entries } = await readJournal(migrationsFolder);
  const lines = entries.map(({ tag }) => `applied ${tag}\n`).join('');
  expect(await migrate()).toMatchObject({ code: 0, stdout: `${lines}the database is up to date\n` });
  expect(await migrate()).toMatchObject({ code: 0, stdout: 'the database is up to date\n' });
});
