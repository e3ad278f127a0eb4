/** Dumps of PostgreSQL 15, restored into 15 and 18 with the programs that operators use. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { migrateDatabase } from '../../src/database/migrations.js';
import { migrationsFolder, packageFolder } from '../../src/packageFolder.js';
import { runOn } from '../support/command.js';
import { connectTo } from '../support/connection.js';
import { expectDerivedToAgree } from '../support/derived.js';
import { type PostgresServer, startPostgres } from '../support/postgresServer.js';
import { isInstalled } from '../support/programs.js';
import { makeFolder } from '../support/temporaryFolder.js';

const VERSIONS =
  /^POSTGRES_VERSIONS := (.*)$/m.exec(readFileSync('Makefile.maintainers', 'utf8'))?.[1]?.split(' ') ?? [];
const programsOf = (major: number) => {
  const version =
    VERSIONS.find((candidate) => candidate.startsWith(`${major}.`)) ?? expect.fail(`no PostgreSQL ${major}`);
  return join(packageFolder, '.cache', 'postgres', version, 'package.json');
};

let folder: string;
const servers: Record<number, PostgresServer> = {};

describe.runIf(isInstalled('pg_dump'))('a database of PostgreSQL 15', () => {
  beforeAll(async () => {
    folder = await makeFolder('branded-phone-numbers-dump-');
    for (const major of [15, 18]) servers[major] = await startPostgres({}, programsOf(major));
    const source = urlOf(15);
    await migrateDatabase(source, migrationsFolder);
    expect((await runOn(source, ['import', join(packageFolder, 'demo', 'numbers.ndjson')])).code).toBe(0);
    // Items with a later updatedAt than in their sources, and numbers without entries.
    const sql = connectTo(source);
    await sql`UPDATE carrier_statuses SET detailed_status = 'rejected.optIn' WHERE phone_number LIKE '%7'`;
    await sql`DELETE FROM carrier_statuses WHERE phone_number LIKE '%11'`;
    await sql.end();
    execFileSync('pg_dump', ['--format=custom', `--file=${join(folder, 'whole')}`, source]);
    const tables = ['business_profiles', 'branded_phone_numbers', 'carrier_statuses'].map((name) => `--table=${name}`);
    const options = ['--format=custom', '--data-only', ...tables, `--file=${join(folder, 'sources')}`];
    execFileSync('pg_dump', [...options, source]);
  });
  afterAll(async () => {
    for (const server of Object.values(servers)) await server.remove();
  });

  it.each([15, 18])('is restored from its whole dump into PostgreSQL %i, and exports the same bytes', async (major) => {
    const restored = await newDatabase(major, 'whole');
    execFileSync('pg_restore', ['--exit-on-error', `--dbname=${restored}`, join(folder, 'whole')]);
    expect(await exportOf(restored)).toEqual(await exportOf(urlOf(15)));
    expect(await runOn(restored, ['check'])).toMatchObject({
      code: 0,
      stdout: 'OK: the read model matches its sources\n',
    });
    const sql = connectTo(restored);
    await sql`UPDATE carrier_statuses SET detailed_status = 'pending.optIn'`;
    await expectDerivedToAgree(sql);
    await sql.end();
  });

  it.each([15, 18])(
    'is right in PostgreSQL %i after a restore of its sources without triggers, and check --repair',
    async (major) => {
      const restored = await newDatabase(major, 'sources');
      await migrateDatabase(restored, migrationsFolder);
      const options = ['--exit-on-error', '--data-only', '--disable-triggers', `--dbname=${restored}`];
      execFileSync('pg_restore', [...options, join(folder, 'sources')]);
      const found = /^\d+ numbers differ from their sources: (\+\d+, ){5}…\n$/;
      const checked = await runOn(restored, ['check']);
      expect(checked).toMatchObject({ code: 1, stdout: '' });
      expect(checked.stderr).toMatch(found);
      expect(await runOn(restored, ['check', '--repair'])).toMatchObject({
        code: 0,
        stdout: `repaired: ${checked.stderr}OK: the read model matches its sources\n`,
      });
      const sql = connectTo(restored);
      await expectDerivedToAgree(sql);
      await sql.end();
    },
  );

  it.each([
    ['the original database', async () => urlOf(15)],
    [
      'a newly migrated database',
      async () => {
        const url = await newDatabase(15, 'empty');
        await migrateDatabase(url, migrationsFolder);
        return url;
      },
    ],
  ])(
    'that was restored without the schema drizzle is right after that schema is copied from %s',
    async (from, urlFrom) => {
      const restored = await newDatabase(15, `public_${from.length}`);
      const shell = (line: string, variables: Record<string, string>) =>
        execFileSync('bash', ['-o', 'pipefail', '-c', line], { env: { ...process.env, ...variables }, stdio: 'pipe' });
      shell('pg_dump -n public "$SOURCE" | psql "$RESTORED"', { SOURCE: urlOf(15), RESTORED: restored });
      for (const args of [['check'], ['migrate'], ['serve']]) {
        const { code, stderr } = await runOn(restored, args);
        expect([code, stderr]).toEqual([1, expect.stringMatching(/^The schema public has .* "Backups"/)]);
      }
      const line = /^pg_dump .*-n drizzle .*$/m.exec(readFileSync('docs/operations.md', 'utf8'))?.[0] ?? expect.fail();
      shell(line, { SOURCE: await urlFrom(), RESTORED: restored });
      expect(await runOn(restored, ['check'])).toMatchObject({
        code: 0,
        // The log of serve may write a line after serve has exited.
        stdout: expect.stringContaining('OK: the read model matches its sources\n'),
      });
      expect(await exportOf(restored)).toEqual(await exportOf(urlOf(15)));
    },
  );
});

const urlOf = (major: number) => servers[major]?.url ?? expect.fail();

async function newDatabase(major: number, name: string): Promise<string> {
  const sql = connectTo(urlOf(major));
  await sql.unsafe(`CREATE DATABASE ${name}`);
  await sql.end();
  return urlOf(major).replace(/postgres$/, name);
}

async function exportOf(url: string): Promise<string> {
  const file = join(folder, 'export.ndjson');
  expect((await runOn(url, ['export', file])).code).toBe(0);
  return readFile(file, 'utf8');
}
