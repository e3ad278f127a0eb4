/** Commands beside other writers: they start, hold no locks after they have ended, and report which session blocks them. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Sql } from 'postgres';
import { beforeEach, describe, expect, it } from 'vitest';
import type { BusinessProfile } from '../../../generated/types/models/index.js';
import { useCommand } from '../../support/command.js';
import { useConnection, whileLocked } from '../../support/connection.js';
import { numberWith, PROFILES } from '../../support/numbers.js';
import { repeat, until } from '../../support/until.js';

const command = useCommand();
const LINE = JSON.stringify(numberWith({ phoneNumber: '+19' }));
/** How many numbers there are, and writers that write one number each. */
const COUNT = 24;

/** Waits until a command's last statement contains this text, and is finished, or waits for a lock if `waits`. */
const untilSent = (sql: Sql, statement: string, waits = false) =>
  until(async () => {
    await sql`SELECT pg_stat_clear_snapshot()`;
    const rows = await sql`
      SELECT FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE ${`%${statement}%`}
        AND state = ${waits ? 'active' : 'idle'} AND (wait_event_type = 'Lock') = ${waits}`;
    return rows.length > 0;
  }, statement);

beforeEach(async () => {
  const { sql } = command;
  await sql`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
  for (const { id } of PROFILES) await sql`INSERT INTO business_profiles VALUES (${id}, 'Before', 'approved')`;
  await sql`
    INSERT INTO branded_phone_numbers (phone_number, business_profile_id)
    SELECT '+1' || i, ${PROFILES[0]?.id ?? ''} FROM generate_series(1, ${COUNT}) AS i`;
  await sql`
    INSERT INTO carrier_statuses
    SELECT phone_number, 'AT&T', 'brandedCallerId', 'approved.optIn' FROM branded_phone_numbers`;
});

describe('a command', () => {
  it('starts beside many writers of short transactions', async () => {
    const sessions = Array.from({ length: COUNT }, () => useConnection(command.databaseUrl));
    const stop = repeat(COUNT, async (i) =>
      sessions[i]?.begin(async (transaction) => {
        await transaction`SELECT FROM branded_phone_numbers WHERE phone_number = ${`+1${i + 1}`} FOR UPDATE`;
        await transaction`UPDATE carrier_statuses SET carrier = 'AT&T' WHERE phone_number = ${`+1${i + 1}`}`;
      }),
    );
    expect(await command.run(['import', '-'], LINE)).toMatchObject({ code: 0 });
    await stop();
  });

  it("says PostgreSQL's reason if a table is locked when it starts", () =>
    whileLocked(command.databaseUrl, 'LOCK TABLE items', async () => {
      const { code, stderr } = await command.run(['keys', 'list']);
      expect({ code, stderr }).toEqual({ code: 75, stderr: expect.stringMatching(/lock timeout/) });
    }));

  it.each([
    ['import line.ndjson', 'SIGTERM', 'FOR UPDATE'],
    ['delete gone.txt', 'SIGINT', 'FOR UPDATE'],
    ['check', 'SIGKILL', 'FOR NO KEY UPDATE'],
  ] as const)('holds no locks after it has ended: %s, after %s while it writes', async (line, signal, statement) => {
    await writeFile(join(command.folder, 'line.ndjson'), LINE);
    await writeFile(join(command.folder, 'gone.txt'), '+11');
    const sql = useConnection(command.databaseUrl);
    await sql`BEGIN`;
    // The command waits for this lock while it writes.
    await sql`LOCK TABLE postings IN ACCESS EXCLUSIVE MODE`;
    const { child, finished } = command.start(line.split(' '), {
      DATABASE_URL: `${command.databaseUrl}?application_name=ended`,
    });
    await untilSent(sql, statement, true);
    child.kill(signal);
    await finished;
    await until(async () => {
      await sql`SELECT pg_stat_clear_snapshot()`;
      const sessions = await sql`
        SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'ended %'`;
      return sessions.length === 0;
    }, 'its sessions end');
    await sql`LOCK TABLE branded_phone_numbers IN EXCLUSIVE MODE NOWAIT`;
    await sql`COMMIT`;
    expect(await sql`SELECT FROM items`).toHaveLength(COUNT);
  });

  it.each([
    [
      'a session',
      `UPDATE carrier_statuses SET carrier = 'AT&T' WHERE phone_number = '+11'`,
      'COMMIT',
      'process \\d+, \\w+, a writer, idle in transaction',
    ],
    [
      'a prepared transaction',
      `SELECT FROM branded_phone_numbers FOR UPDATE; PREPARE TRANSACTION 'forgotten'`,
      `ROLLBACK PREPARED 'forgotten'`,
      'prepared transaction forgotten, \\w+',
    ],
    [
      'a session that holds a business profile',
      'SELECT FROM business_profiles FOR UPDATE',
      'ROLLBACK',
      'process \\d+, \\w+, a writer, idle in transaction',
    ],
  ])('reports once what blocks it: %s', async (_what, blocking, ending, blocker) => {
    const sql = useConnection(command.databaseUrl);
    const [profile] = PROFILES;
    const line = numberWith({
      phoneNumber: '+11',
      businessProfile: { ...profile, businessName: 'After' } as BusinessProfile,
    });
    await writeFile(join(command.folder, 'blocked.ndjson'), JSON.stringify(line));
    await sql.unsafe(`SET application_name = 'a writer'; BEGIN; ${blocking}`);
    const { child, finished } = command.start(['import', 'blocked.ndjson'], { DATABASE_URL: command.databaseUrl });
    let printed = '';
    child.stderr?.on('data', (text) => (printed += text));
    await until(() => printed.includes('waiting'), 'it reports a blocker', 60_000);
    await sql.unsafe(ending);
    const { code, stderr } = await finished;
    expect(code).toBe(0);
    expect(stderr).toMatch(
      new RegExp(
        `^(?:wrote .*\\n)*waiting for transactions of other programs to end:\\n  ${blocker}, since [-0-9: +]+\\n(?:wrote .*\\n)*$`,
      ),
    );
  });
});
