/**
 * Upgrades: `migrate` upgrades a database of any release and keeps its data.
 *
 * releases.json has the migrations of each release with the SHA-256 of each file. A release adds its own; migrations of
 * earlier releases never change.
 */
import { createHash } from 'node:crypto';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type { Sql } from 'postgres';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { closeDatabase, type Database, openDatabase } from '../../src/database/connect.js';
import { migrateDatabase } from '../../src/database/migrations.js';
import { deriveAll } from '../../src/operator/numbers/check.js';
import { importNumbers } from '../../src/operator/numbers/import.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import { UserError } from '../../src/userError.js';
import { createDatabase } from '../support/database.js';
import { expectDerivedToAgree, items } from '../support/derived.js';
import { entryWith, numberWith } from '../support/numbers.js';
import releases from './releases.json' with { type: 'json' };

interface Journal {
  entries: { idx: number; version: string; when: number; tag: string; breakpoints: boolean }[];
}

const readJournal = async (folder: string): Promise<Journal> =>
  JSON.parse(await readFile(join(folder, 'meta', '_journal.json'), 'utf8'));

let folder: string;
let database: Database;
let url: string;
let drop: () => Promise<void>;
const sql = () => database.$client as unknown as Sql;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'migrations-'));
});
afterAll(() => rm(folder, { recursive: true }));
beforeEach(async () => {
  ({ url, drop } = await createDatabase({ isEmpty: true }));
});
afterEach(async () => {
  if (database) await closeDatabase(database);
  await drop();
});

/** Makes a folder of the first `count` migrations and the `added` ones, each of a statement. */
async function folderOf(name: string, count: number, added: string[] = []): Promise<string> {
  const path = join(folder, name);
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
  folderOf('next', Number.POSITIVE_INFINITY, [
    'ALTER TABLE branded_phone_numbers ADD COLUMN next_name text',
    `UPDATE branded_phone_numbers SET next_name = internal_name, reporting_group = 'Next'`,
  ]);

const importOne = (phoneNumber: string) => {
  const carrierStatuses = [entryWith('AT&T', 'brandedCallerId', 'rejected.optIn')];
  return importNumbers(database, Readable.from([JSON.stringify(numberWith({ phoneNumber, carrierStatuses }))]));
};

async function expectAllToBeRight(phoneNumbers: string[]): Promise<void> {
  expect((await items(sql())).map(({ phoneNumber }) => phoneNumber)).toEqual(phoneNumbers);
  await expectDerivedToAgree(sql());
  expect(await deriveAll(database, { keep: false })).toEqual([]);
}

it('each migration is newer than the previous one; otherwise Drizzle would skip it', async () => {
  const times = (await readJournal(migrationsFolder)).entries.map(({ when }) => when);
  expect(times).toEqual([...new Set(times)].sort((a, b) => a - b));
});

describe.each(Object.entries(releases))('release %s', (version, { migrations }) => {
  it('has the migrations with which it was released', async () => {
    const { entries } = await readJournal(migrationsFolder);
    const tags = Object.keys(migrations);
    expect(entries.slice(0, tags.length).map(({ tag }) => tag)).toEqual(tags);
    for (const [tag, hash] of Object.entries(migrations)) {
      const file = await readFile(join(migrationsFolder, `${tag}.sql`));
      expect(
        createHash('sha256').update(file).digest('hex'),
        `drizzle/${tag}.sql was changed: add a migration instead`,
      ).toBe(hash);
    }
  });

  it('is upgraded, with its data', async () => {
    await migrateDatabase(url, await folderOf(version, Object.keys(migrations).length));
    database = openDatabase(url);
    await sql().unsafe(await readFile('test/database/releasedRows.sql', 'utf8'));
    const before = await items(sql());
    await migrateDatabase(url, migrationsFolder);
    expect(await items(sql())).toMatchObject(before);
    await importOne('+19');
    await expectAllToBeRight([...before.map(({ phoneNumber }) => phoneNumber), '+19']);
  });
});

it('a later version can change data and add columns', async () => {
  await migrateDatabase(url, migrationsFolder);
  database = openDatabase(url);
  await importOne('+18');
  await migrateDatabase(url, await nextVersion());
  expect(await items(sql())).toMatchObject([{ reportingGroup: 'Next', status: 'rejected' }]);
  await expectAllToBeRight(['+18']);
});

it.each<[string, (next: string) => Promise<unknown>]>([
  ['after', (next) => migrateDatabase(url, next).then(() => migrateDatabase(url, migrationsFolder))],
  ['beside', (next) => Promise.all([migrationsFolder, next].map((migrations) => migrateDatabase(url, migrations)))],
])('an older version that migrates %s a newer one leaves the newer schema, and can be used', async (_when, migrate) => {
  const next = await nextVersion();
  await migrate(next);
  database = openDatabase(url);
  expect(await sql()`SELECT FROM drizzle.__drizzle_migrations`).toHaveLength((await readJournal(next)).entries.length);
  await importOne('+18');
  await expectAllToBeRight(['+18']);
});

describe('a database of which only one schema was restored', () => {
  it.each(['DROP SCHEMA drizzle CASCADE', 'DELETE FROM drizzle.__drizzle_migrations'])(
    'is not changed if the record of its migrations is missing, which is reported: %s',
    async (loss) => {
      await migrateDatabase(url, migrationsFolder);
      database = openDatabase(url);
      await importOne('+18');
      await sql().unsafe(loss);
      const isMissing = async () => (await sql()`SELECT to_regnamespace('drizzle') IS NULL AS missing`)[0]?.missing;
      const before = await isMissing();
      const migrating = migrateDatabase(url, migrationsFolder);
      await expect(migrating).rejects.toThrow(
        /^The schema public has \w+, but .* no record .*pg_dump -n public -n drizzle/,
      );
      await expect(migrating).rejects.toBeInstanceOf(UserError);
      expect(await isMissing()).toBe(before);
      await expectAllToBeRight(['+18']);
    },
  );

  it('can be migrated after the statement in the error message if its tables are missing', async () => {
    await migrateDatabase(url, migrationsFolder);
    database = openDatabase(url);
    await sql()`DROP SCHEMA public CASCADE`;
    await sql()`CREATE SCHEMA public`;
    const reason = await migrateDatabase(url, migrationsFolder).catch(({ message }) => message);
    expect(reason).toMatch(/^The schema drizzle has a record .*: DROP SCHEMA/);
    await sql().unsafe(/DROP SCHEMA.*/.exec(reason)?.[0] ?? '');
    await migrateDatabase(url, migrationsFolder);
    await importOne('+18');
    await expectAllToBeRight(['+18']);
  });
});
