/** Which database a command uses, and what it does if there is none. */
import { mkdtemp, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { connectTo } from '../connection.js';
import { createDatabase } from '../database.js';
import { openToxicProxy } from '../faults/toxicProxy.js';
import { useCommand } from './command.js';

const command = useCommand();

describe('the database in use', () => {
  it('is named by every command, without its password', async () => {
    const secret = new URL(command.databaseUrl);
    secret.searchParams.set('application_name', 'hidden');
    const { database } = await command.start(['keys', 'list'], { DATABASE_URL: secret.href }).finished;
    expect(database).toBe(`database: postgres://${secret.host}${secret.pathname}\n`);
  });

  it.each([[['keys', 'create', '--name', 'x']], [['keys', 'list']], [['migrate']]])(
    'is not made by %j in a folder that has none',
    async (args) => {
      const other = await mkdtemp(join(command.folder, 'another-'));
      const { code, stdout, stderr } = await command.start(args, {}, other).finished;
      expect([code, stdout]).toEqual([1, '']);
      expect(stderr).toMatch(/^There is no database in .*another-\w+\/\.data\. .*DATABASE_URL.*\n$/);
      expect(await readdir(other)).toEqual([]);
    },
  );

  it.each([['migrate'], ['serve'], ['import', '-'], ['export'], ['delete'], ['check'], ['keys', 'list']])(
    'is refused by %s where its encoding is not UTF8',
    async (...args) => {
      const { url, drop } = await createDatabase({ isEmpty: true, encoding: 'LATIN1' });
      const { code, stdout, stderr } = await command.start(args, { DATABASE_URL: url, PORT: '0' }).finished;
      await drop();
      expect([code, stdout]).toEqual([1, '']);
      expect(stderr).toMatch(/^The encoding of the database test_\w+ is LATIN1, and it has to be UTF8: .*\n$/);
    },
  );

  it('is in the schema public, even if the role has a schema of its own name, or another search_path', async () => {
    const { url, drop } = await createDatabase({ isEmpty: true });
    const sql = connectTo(url);
    await sql.unsafe(`CREATE SCHEMA AUTHORIZATION CURRENT_USER`);
    await sql.unsafe(`ALTER DATABASE ${new URL(url).pathname.slice(1)} SET search_path = nowhere`);
    const run = (...args: string[]) => command.start(args, { DATABASE_URL: url }).finished;
    const demo = join(packageFolder, 'demo', 'numbers.ndjson');
    expect([await run('migrate'), await run('import', demo), await run('check'), await run('keys', 'list')]).toEqual(
      Array(4).fill(expect.objectContaining({ code: 0 })),
    );
    const tables = await sql`SELECT DISTINCT schemaname FROM pg_tables WHERE schemaname !~ '^(pg_|information_schema)'`;
    await sql.end();
    await drop();
    expect(tables.map(({ schemaname }) => schemaname).sort()).toEqual(['drizzle', 'public']);
  });

  it('ends the command if it closes every connection, and the command says so', async () => {
    const proxy = await openToxicProxy(Number(new URL(command.databaseUrl).port));
    proxy.behave('refusing');
    const { finished } = command.start(['keys', 'list'], { DATABASE_URL: proxy.through(command.databaseUrl) });
    const stderr = expect.stringMatching(
      /^(PostgreSQL at 127\.0\.0\.1 closes its connections without an answer|read ECONNRESET)\n$/,
    );
    expect(await finished).toMatchObject({ code: 1, stdout: '', stderr });
    await proxy.close();
  });

  it('may be migrated by several commands at once', async () => {
    const { url, drop } = await createDatabase({ isEmpty: true });
    const results = await Promise.all([1, 2].map(() => command.start(['migrate'], { DATABASE_URL: url }).finished));
    await drop();
    const done = { code: 0, stdout: 'the database is up to date\n' };
    expect(results).toMatchObject([done, done]);
  });
});
