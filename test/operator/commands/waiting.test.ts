/** Commands beside other writers: they start, hold no locks after they have ended, and report which session blocks them. */
import { describe, expect, it } from 'vitest';
import { useConnection, whileLocked } from '../../support/connection.js';
import { repeat } from '../../support/until.js';
import { COUNT, command, expectNoLocks, expectReport, LINE, useWriters } from './waiting.js';

useWriters();

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

  it.each(['items', 'api_keys'])(
    "says PostgreSQL's reason, and who is in the way, if it finds a table locked: %s",
    (table) =>
      whileLocked(command.databaseUrl, `LOCK TABLE ${table}`, async () => {
        const url = `${command.databaseUrl}?application_name=${table}`;
        const { code, stderr } = await command.run(['keys', 'list'], '', { environment: { DATABASE_URL: url } });
        const said = /^waiting for transactions of other programs to end:\n {2}process \d+, .*\n.* lock timeout\n$/;
        expect({ code, stderr }).toEqual({ code: 75, stderr: expect.stringMatching(said) });
      }),
  );

  // The soak has other commands, other signals, and other blockers.
  it('holds no locks after it has ended: import line.ndjson, after SIGTERM while it writes', () =>
    expectNoLocks('import line.ndjson', 'SIGTERM', 'FOR UPDATE'));

  it('reports once what blocks it: a session', () =>
    expectReport(
      `UPDATE carrier_statuses SET carrier = 'AT&T' WHERE phone_number = '+11'`,
      'COMMIT',
      'process \\d+, \\w+, a writer, idle in transaction',
    ));
});
