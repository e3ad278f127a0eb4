import type { Sql } from 'postgres';
import { describe, expect, it } from 'vitest';
import { expectDerivedToAgree, items } from '../support/derived.js';
import { addNumber, first, second, useSessions } from '../support/sessions.js';
import { until } from '../support/until.js';

const PHONE = '+14155550123';

useSessions();

const writeNumber = (sql: Sql) => addNumber(sql, PHONE);
const writeEntry = (sql: Sql) =>
  sql`INSERT INTO carrier_statuses VALUES (${PHONE}, 'AT&T', 'brandedCallerId', 'rejected.optIn')`;
/** Until `sql`'s statement waits for a lock of another session. */
const untilWaiting = (sql: Sql) =>
  until(async () => {
    // Within a transaction, PostgreSQL would keep showing what it showed first.
    await sql`SELECT pg_stat_clear_snapshot()`;
    const rows = await sql`
      SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`;
    return rows.length === 1;
  }, 'the other session waits for a lock');

describe('an entry without its number', () => {
  it('is rejected at once', async () => {
    await second`BEGIN`;
    await expect(writeEntry(second)).rejects.toThrow('carrier_status_has_number');
    await second`ROLLBACK`;
  });

  it.each(['REPEATABLE READ', 'SERIALIZABLE'])(
    'is refused if the number was committed after the snapshot of a %s transaction',
    async (isolation) => {
      await second.unsafe(`BEGIN ISOLATION LEVEL ${isolation}`);
      await second`TABLE branded_phone_numbers`;
      await writeNumber(first);
      await expect(writeEntry(second)).rejects.toThrow('carrier_status_has_number');
      await second`ROLLBACK`;
      await expectDerivedToAgree(first);
    },
  );
});

describe('entries of one number that two sessions write', () => {
  it('both appear', async () => {
    await writeNumber(first);
    await first`BEGIN`;
    await writeEntry(first);
    const adding = second`INSERT INTO carrier_statuses VALUES (${PHONE}, 'Verizon', 'brandedCallerId', 'approved.optIn')`;
    const added = adding.execute();
    await untilWaiting(first);
    await first`COMMIT`;
    await added;
    expect(await items(first)).toMatchObject([{ carrierStatuses: [{ carrier: 'AT&T' }, { carrier: 'Verizon' }] }]);
    await expectDerivedToAgree(first);
  });

  it.each(['REPEATABLE READ', 'SERIALIZABLE'])('are refused to the one with an old snapshot: %s', async (isolation) => {
    await writeNumber(first);
    await second.unsafe(`BEGIN ISOLATION LEVEL ${isolation}`);
    await second`TABLE carrier_statuses`;
    await writeEntry(first);
    const adding = second`INSERT INTO carrier_statuses VALUES (${PHONE}, 'Verizon', 'brandedCallerId', 'approved.optIn')`;
    await expect(adding).rejects.toMatchObject({ code: '40001' });
    await second`ROLLBACK`;
    await expectDerivedToAgree(first);
  });
});

describe('a number that is written while another session deletes it', () => {
  it('has no entry of the deleted number', async () => {
    await writeNumber(first);
    await first`INSERT INTO carrier_statuses VALUES (${PHONE}, 'AT&T', 'brandedCallerId', 'rejected.optIn')`;
    await first`BEGIN`;
    await first`DELETE FROM branded_phone_numbers WHERE phone_number = ${PHONE}`;
    const writing = writeNumber(second).execute();
    await untilWaiting(first);
    await first`COMMIT`;
    await writing;
    expect(await items(first)).toMatchObject([{ phoneNumber: PHONE, status: 'unregistered', carrierStatuses: [] }]);
    await expectDerivedToAgree(first);
  });
});

describe('a new term that two sessions use', () => {
  it('is added once', async () => {
    await writeNumber(first);
    await addNumber(first, '+19');
    await first`BEGIN`;
    await writeEntry(first);
    const adding =
      second`INSERT INTO carrier_statuses VALUES ('+19', 'AT&T', 'brandedCallerId', 'rejected.optIn')`.execute();
    await untilWaiting(first);
    await first`COMMIT`;
    await adding;
    await expectDerivedToAgree(first);
  });
});
