/** Which database a command uses, and what the command reports if it cannot use it. */
import { readFileSync } from 'node:fs';
import { mkdtemp, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { failureOf } from '../../../src/database/errors.js';
import { OutputError } from '../../../src/operator/commands/output.js';
import { packageFolder } from '../../../src/packageFolder.js';
import { useCommand } from '../../support/command.js';
import { useConnection } from '../../support/connection.js';
import { createDatabase } from '../../support/database.js';
import { fill } from '../../support/embeddedPostgresFolder.js';
import { useProxy } from '../../support/toxicProxy.js';
import { until } from '../../support/until.js';

const command = useCommand();
const run = (url: string, ...args: string[]) =>
  command.run(args, '', { environment: { DATABASE_URL: url, PORT: '0' } });
const GONE = /^PostgreSQL can't be reached, or has ended the connection \([^)]+\)\. .*run this again once .*\n$/;

describe('the database in use', () => {
  it.each(['keys create --name x', 'keys list', 'migrate'])('is not created by %s in a new folder', async (line) => {
    const folder = await mkdtemp(join(command.folder, 'another-'));
    const { code, stdout, stderr } = await command.run(line.split(' '), '', { environment: {}, folder });
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/^There is no database in .*another-\w+\/\.data\. .*DATABASE_URL.*\n$/);
    expect(await readdir(folder)).toEqual([]);
  });

  it('is rejected by every command if its encoding is not UTF8', async () => {
    const url = await createDatabase({ isEmpty: true, encoding: 'LATIN1' });
    for (const args of ['migrate', 'import -', 'export', 'delete', 'check', 'keys list', 'serve']) {
      const { code, stdout, stderr } = await run(url, ...args.split(' '));
      // serve also logs why it ends.
      expect([code, stdout], args).toEqual([1, args === 'serve' ? expect.stringContaining('must be UTF8') : '']);
      expect(stderr).toMatch(/^The encoding of the database test_\w+ is LATIN1, but it must be UTF8: .*\n$/);
    }
  });

  it('is rejected if anyone may create functions, until that is revoked as the command says', async () => {
    const url = await createDatabase({ isEmpty: true });
    const sql = useConnection(url);
    await sql`GRANT CREATE ON SCHEMA public TO PUBLIC`;
    const stderr = expect.stringMatching(/^Anyone may create .* Close it: REVOKE .*\n$/);
    for (const args of ['serve', 'import -']) {
      expect(await run(url, ...args.split(' ')), args).toMatchObject({ code: 1, stderr });
    }
    const rejected = await run(url, 'migrate');
    expect(rejected).toMatchObject({ code: 1, stderr });
    await sql.unsafe(/REVOKE.*/.exec(rejected.stderr)?.[0] ?? '');
    expect(await run(url, 'migrate')).toMatchObject({ code: 0 });
  });

  it('is in the schema public, even if a schema is named after the role, and with any search_path', async () => {
    const url = await createDatabase({ isEmpty: true });
    const sql = useConnection(url);
    await sql.unsafe(`CREATE SCHEMA AUTHORIZATION CURRENT_USER`);
    await sql.unsafe(`ALTER DATABASE ${new URL(url).pathname.slice(1)} SET search_path = nowhere`);
    const demo = join(packageFolder, 'demo', 'numbers.ndjson');
    for (const args of [['migrate'], ['import', demo], ['check'], ['keys', 'list']]) {
      expect(await run(url, ...args)).toMatchObject({ code: 0 });
    }
    const tables = await sql`SELECT DISTINCT schemaname FROM pg_tables WHERE schemaname !~ '^(pg_|information_schema)'`;
    expect(tables.map(({ schemaname }) => schemaname).sort()).toEqual(['drizzle', 'public']);
  });

  it('makes the command exit with the reason if it closes every connection', async () => {
    const proxy = await useProxy(command.databaseUrl);
    proxy.behave('refusing');
    const ended = await run(proxy.through(command.databaseUrl), 'keys', 'list');
    expect(ended).toMatchObject({ code: 75, stdout: '', stderr: expect.stringMatching(GONE) });
  });

  it.each([
    [
      'an import waits for input',
      (url: string) => command.shell(`export DATABASE_URL=${url}; mkfifo slow; exec 3<>slow; $command import - <&3`),
      'COPY',
    ],
    ['an export waits for a lock', (url: string) => run(url, 'export'), 'LOCK TABLE business_profiles'],
  ])('makes the command exit with the reason if it disappears while %s', async (_when, start, statement) => {
    const proxy = await useProxy(command.databaseUrl);
    const sql = useConnection(command.databaseUrl);
    await sql`BEGIN`;
    await sql`LOCK TABLE branded_phone_numbers, postings`;
    const finished = start(proxy.through(command.databaseUrl));
    const isRunning = async () => {
      await sql`SELECT pg_stat_clear_snapshot()`;
      const active = await sql`
        SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND query LIKE ${`%${statement}%`} AND state = 'active' AND pid <> pg_backend_pid()`;
      return active.length === 1;
    };
    await until(isRunning, `the command runs ${statement}`);
    proxy.behave('refusing');
    expect(await finished).toMatchObject({ code: 75, stdout: '', stderr: expect.stringMatching(GONE) });
  });

  it('makes the command exit with the reason if it is the embedded PostgreSQL, and is killed', async () => {
    const folder = await mkdtemp(join(command.folder, 'killed-'));
    await fill(join(folder, '.data'));
    const postmaster = () => readFileSync(join(folder, '.data/postgres/data/postmaster.pid'), 'utf8');
    // The import reads its input once it is connected.
    const input = new Readable({ read: () => void process.kill(Number.parseInt(postmaster(), 10), 'SIGKILL') });
    const { code, stderr } = await command.run(['import', '-'], input, { environment: {}, folder });
    expect({ code, stderr }).toEqual({
      code: 75,
      stderr: expect.stringMatching(
        /^see the log of the embedded PostgreSQL, .*\/log\nPostgreSQL can't be reached, .*\n$/,
      ),
    });
  });

  it('is not blamed if the reader of the output closes the pipe', () => {
    const cause = Object.assign(new Error('write EPIPE'), { code: 'EPIPE' });
    expect(failureOf(new OutputError('', { cause }))).toBe('ours');
  });
});
