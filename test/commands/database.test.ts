/** Which database a command uses, and what it does where there is none. */
import { mkdtemp, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createDatabase } from '../database.js';
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

  it('may be migrated by several commands at once', async () => {
    const { url, drop } = await createDatabase({ isEmpty: true });
    const results = await Promise.all([1, 2].map(() => command.start(['migrate'], { DATABASE_URL: url }).finished));
    await drop();
    const done = { code: 0, stdout: 'the database is up to date\n' };
    expect(results).toMatchObject([done, done]);
  });
});
