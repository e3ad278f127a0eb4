import type { Sql } from 'postgres';
import { describe, expect, it } from 'vitest';
import { until } from '../until.js';
import { expectDerivedToAgree, items } from './derived.js';
import { addNumber, first, second, useSessions } from './sessions.js';

const PHONE = '+14155550123';

useSessions();

const writeNumber = (sql: Sql) => addNumber(sql, PHONE);
const writeEntryFirst = async (sql: Sql) => {
  await sql`SET CONSTRAINTS ALL DEFERRED`;
  await sql`INSERT INTO carrier_statuses VALUES (${PHONE}, 'AT&T', 'brandedCallerId', 'rejected.optIn')`;
};
/** Until `sql`'s statement waits for a lock of another session. */
const untilWaiting = (sql: Sql) =>
  until(async () => {
    // Within a transaction PostgreSQL would go on showing what it showed first.
    await sql`SELECT pg_stat_clear_snapshot()`;
    const rows = await sql`
      SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`;
    return rows.length === 1;
  }, 'the other session waits for a lock');

describe('Entries that are written before their number', () => {
  it('count when the number is committed meanwhile by another session', async () => {
    await second`BEGIN`;
    await writeEntryFirst(second);
    const adding = writeNumber(first).execute();
    await second`COMMIT`.catch(() => {});
    await adding;
    // The entry was refused or it counts; the number is right either way.
    await expectDerivedToAgree(first);
  });

  it('count when the number was written before, and is committed while they wait for it', async () => {
    await first`BEGIN`;
    await writeNumber(first);
    await second`BEGIN`;
    const writing = writeEntryFirst(second);
    await untilWaiting(first);
    await first`COMMIT`;
    await writing;
    await second`COMMIT`;
    expect(await items(first)).toMatchObject([{ status: 'rejected', carrierStatuses: [{ carrier: 'AT&T' }] }]);
    await expectDerivedToAgree(first);
  });

  it('are refused where the session would not see the number: under REPEATABLE READ', async () => {
    await second`BEGIN ISOLATION LEVEL REPEATABLE READ`;
    await expect(writeEntryFirst(second)).rejects.toThrow('under READ COMMITTED only');
    await second`ROLLBACK`;
  });

  it('are refused when the number never comes', async () => {
    await second`BEGIN`;
    await writeEntryFirst(second);
    await expect(second`COMMIT`).rejects.toThrow('carrier_status_has_number');
    expect(await first`SELECT FROM carrier_statuses`).toHaveLength(0);
  });
});

describe('A number that is written while another session deletes it', () => {
  const deleteWhile = async (write: (sql: Sql) => PromiseLike<unknown>) => {
    await writeNumber(first);
    await first`INSERT INTO carrier_statuses VALUES (${PHONE}, 'AT&T', 'brandedCallerId', 'rejected.optIn')`;
    await first`BEGIN`;
    await first`DELETE FROM branded_phone_numbers WHERE phone_number = ${PHONE}`;
    const writing = write(second);
    await untilWaiting(first);
    await first`COMMIT`;
    await writing;
    expect(await items(first)).toMatchObject([{ phoneNumber: PHONE, status: 'unregistered', carrierStatuses: [] }]);
    await expectDerivedToAgree(first);
  };

  it('has no entry of the deleted one', () => deleteWhile((sql) => writeNumber(sql).execute()));

  it('has none either when another number is renumbered to it', async () => {
    await addNumber(first, '+19');
    await deleteWhile((sql) =>
      sql`UPDATE branded_phone_numbers SET phone_number = ${PHONE} WHERE phone_number = '+19'`.execute(),
    );
  });
});

describe('The first numbers of two sessions', () => {
  it('are both listed, those of the second after those of the first', async () => {
    await first`BEGIN`;
    await addNumber(first, PHONE);
    const adding = addNumber(second, '+19').execute();
    await untilWaiting(first);
    await first`COMMIT`;
    await adding;
    expect((await items(first)).map(({ phoneNumber }) => phoneNumber)).toEqual([PHONE, '+19']);
    await expectDerivedToAgree(first);
  });
});

describe('Terms that no number has any more', () => {
  const terms = (sql: Sql) => sql`SELECT carrier FROM terms WHERE carrier IS NOT NULL`;
  const write = async (sql: Sql) => {
    await writeNumber(sql);
    await sql`INSERT INTO carrier_statuses VALUES (${PHONE}, 'AT&T', 'brandedCallerId', 'rejected.optIn')`;
  };

  it('are swept, and those in use stay', async () => {
    await write(first);
    await first`UPDATE carrier_statuses SET carrier = 'Verizon'`;
    expect(await terms(first)).toHaveLength(2);
    await first`SELECT sweep_terms()`;
    expect(await terms(first)).toEqual([{ carrier: 'Verizon' }]);
    await expect(first`DELETE FROM terms`).rejects.toThrow('is in use');
    await expectDerivedToAgree(first);
  });

  it('are not swept by a session that would not see who uses them: under REPEATABLE READ', async () => {
    await write(first);
    await first`DELETE FROM branded_phone_numbers`;
    await second`BEGIN ISOLATION LEVEL REPEATABLE READ`;
    await second`TABLE terms`;
    await write(first);
    await expect(second`SELECT sweep_terms()`).rejects.toThrow('under READ COMMITTED only');
    await second`ROLLBACK`;
    await expectDerivedToAgree(first);
  });

  it('are not swept from under a session that is using them', async () => {
    await write(first);
    await first`UPDATE carrier_statuses SET carrier = 'Verizon'`;
    await first`BEGIN`;
    await first`UPDATE carrier_statuses SET carrier = 'AT&T'`;
    const sweeping = second`SELECT sweep_terms()`.execute();
    await untilWaiting(first);
    await first`COMMIT`;
    await sweeping;
    await expectDerivedToAgree(first);
  });

  it('are not deleted by hand from under a session that is using them', async () => {
    await write(first);
    await first`UPDATE carrier_statuses SET carrier = 'Verizon'`;
    await first`BEGIN`;
    await first`UPDATE carrier_statuses SET carrier = 'AT&T'`;
    const deleting = second`DELETE FROM terms WHERE carrier = 'AT&T'`.execute();
    const end = deleting.then(
      () => 'deleted',
      (error: Error) => error.message,
    );
    await untilWaiting(first);
    await first`COMMIT`;
    expect(await end).toContain('is in use');
    await expectDerivedToAgree(first);
  });

  it('are not used by a session that still sees them though they are gone', async () => {
    await write(first);
    await first`UPDATE carrier_statuses SET carrier = 'Verizon'`;
    await second`BEGIN ISOLATION LEVEL REPEATABLE READ`;
    await second`TABLE terms`;
    await first`SELECT sweep_terms()`;
    await expect(second`UPDATE carrier_statuses SET carrier = 'AT&T'`).rejects.toThrow('could not serialize access');
    await second`ROLLBACK`;
    await expectDerivedToAgree(first);
  });
});
