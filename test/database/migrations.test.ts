/**
 * Upgrades: from the first release on, migrations only add, and the data of every release is right after `migrate`.
 *
 * releases.json has the migrations of each release, with the SHA-256 of each file, which PostgreSQL records when it runs. A
 * release adds its own, and never changes those that are there.
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

/** A folder with the first `count` migrations, followed by the `added` ones, each a statement. */
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
  const item = {
    phoneNumber,
    businessProfile: { id: '6513270e-269e-4d37-b2a7-4de452e6b438', businessName: 'Circle Bank', status: 'approved' },
    internalName: 'Main Line',
    brandingNameShort: null,
    brandingNameLong: null,
    reportingGroup: null,
    carrierStatuses: [{ carrier: 'AT&T', feature: 'brandedCallerId', detailedStatus: 'rejected.optIn' }],
  };
  return importNumbers(database, Readable.from([Buffer.from(JSON.stringify(item))]));
};

async function expectAllToBeRight(phoneNumbers: string[]): Promise<void> {
  expect((await items(sql())).map(({ phoneNumber }) => phoneNumber)).toEqual(phoneNumbers);
  await expectDerivedToAgree(sql());
  expect(await deriveAll(database, { keep: false })).toEqual([]);
}

it('each migration is newer than the previous one, or it would be skipped', async () => {
  const times = (await readJournal(migrationsFolder)).entries.map(({ when }) => when);
  expect(times).toEqual([...new Set(times)].sort((a, b) => a - b));
});

describe.each(Object.entries(releases))('Release %s', (version, { migrations }) => {
  it('keeps its migrations unchanged: changes are new migrations', async () => {
    const { entries } = await readJournal(migrationsFolder);
    const tags = Object.keys(migrations);
    expect(entries.slice(0, tags.length).map(({ tag }) => tag)).toEqual(tags);
    for (const [tag, hash] of Object.entries(migrations)) {
      const file = await readFile(join(migrationsFolder, `${tag}.sql`));
      expect(createHash('sha256').update(file).digest('hex'), `drizzle/${tag}.sql was changed`).toBe(hash);
    }
  });

  it('is upgraded and keeps its data', async () => {
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

it('the next version upgrades a database, keeps its data and may change the members of an item', async () => {
  await migrateDatabase(url, migrationsFolder);
  database = openDatabase(url);
  await importOne('+18');
  await migrateDatabase(url, await nextVersion());
  expect(await items(sql())).toMatchObject([{ reportingGroup: 'Next', status: 'rejected' }]);
  await expectAllToBeRight(['+18']);
});

it('an older version leaves a newer schema unchanged, and can import and check', async () => {
  const next = await nextVersion();
  await migrateDatabase(url, next);
  await migrateDatabase(url, migrationsFolder);
  database = openDatabase(url);
  expect(await sql()`SELECT FROM drizzle.__drizzle_migrations`).toHaveLength((await readJournal(next)).entries.length);
  await importOne('+18');
  await expectAllToBeRight(['+18']);
});

it('older and newer versions that migrate at once end with the newest schema', async () => {
  const next = await nextVersion();
  await Promise.all([migrationsFolder, next, migrationsFolder, next].map((each) => migrateDatabase(url, each)));
  database = openDatabase(url);
  expect(await sql()`SELECT FROM drizzle.__drizzle_migrations`).toHaveLength((await readJournal(next)).entries.length);
  await importOne('+18');
  await expectAllToBeRight(['+18']);
});

describe('a database of which only one schema was restored', () => {
  it.each(['DROP SCHEMA drizzle CASCADE', 'DELETE FROM drizzle.__drizzle_migrations'])(
    'is left as it is, and said to lack the record of the migrations: %s',
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

  it('is reported to lack the tables, and can be emptied and used again', async () => {
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
