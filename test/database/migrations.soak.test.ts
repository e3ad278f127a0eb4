/** A migration whose lock another program holds for longer than a minute. */
import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { useCommand } from '../support/command.js';
import { connectTo, whileLocked } from '../support/connection.js';
import { createDatabase } from '../support/database.js';
import releases from './releases.json' with { type: 'json' };

const command = useCommand();
const migrate = (url: string) => command.start(['migrate'], { DATABASE_URL: url }).finished;

/** Creates a database as 1.0.0 left it. */
async function createReleased(): Promise<string> {
  const url = await createDatabase({ isEmpty: true });
  const sql = connectTo(url);
  for (const tag of Object.keys(releases['1.0.0'].migrations)) {
    await sql.unsafe(await readFile(`drizzle/${tag}.sql`, 'utf8'));
  }
  await sql.unsafe(`
    CREATE SCHEMA drizzle;
    CREATE TABLE drizzle.__drizzle_migrations (id serial PRIMARY KEY, hash text NOT NULL, created_at bigint)`);
  for (const hash of Object.values(releases['1.0.0'].migrations)) {
    await sql`INSERT INTO drizzle.__drizzle_migrations (hash, created_at) VALUES (${hash}, 0)`;
  }
  await sql.end();
  return url;
}

it.concurrent.each([
  ['0003_steps', 'LOCK carrier_statuses IN ACCESS SHARE MODE'],
  ['0004_guards', 'LOCK items IN SHARE UPDATE EXCLUSIVE MODE'],
  ['0003_steps', 'SELECT pg_advisory_xact_lock(7245983)'],
])(
  'is rolled back, names the program, and is applied by the next attempt: %s beside %s',
  async (tag, lock) => {
    const url = await createReleased();
    const { code, stdout, stderr } = await whileLocked(url, lock, () => migrate(url));
    const blocker = 'process \\d+, postgres, postgres.js, idle in transaction, since [-0-9: +]+';
    expect(stderr).toMatch(
      new RegExp(
        `^waiting for transactions of other programs to end:\\n  ${blocker}\\n` +
          `a migration waited for a minute, and was rolled back: run this again once these have ended: ${blocker}\\n$`,
      ),
    );
    expect([code, stdout]).toEqual([75, '']);
    const next = await migrate(url);
    expect(next.stdout).toMatch(new RegExp(`^applied ${tag}\n(applied \\d{4}_\\w+\n)*the database is up to date\n$`));
    expect(next.code).toBe(0);
  },
  180_000,
);
