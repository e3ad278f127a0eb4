/** Two sessions that write the same numbers at the same time. */
import type { Sql } from 'postgres';
import { describe, expect, it } from 'vitest';
import { untilLockIsAwaited } from '../support/connection.js';
import { expectDerivedToAgree, items } from '../support/derived.js';
import { addNumber, first, second, useSessions } from '../support/sessions.js';

const PHONE = '+14155550123';

useSessions();

const addEntry = (sql: Sql, carrier: string, phoneNumber = PHONE) =>
  sql`INSERT INTO carrier_statuses VALUES (${phoneNumber}, ${carrier}, 'brandedCallerId', 'rejected.optIn')`;

/** Runs the second session's statement while the first has an open transaction; commits that once the statement waits. */
async function commitWhileWaiting(statement: ReturnType<typeof addEntry>): Promise<void> {
  const running = statement.execute();
  await untilLockIsAwaited(first, 'the second session waits for a lock');
  await first`COMMIT`;
  await running;
}

describe.each(['REPEATABLE READ', 'SERIALIZABLE'])('a %s transaction with an old snapshot', (isolation) => {
  it('cannot add an entry to a number that was committed after its snapshot', async () => {
    await second.unsafe(`BEGIN ISOLATION LEVEL ${isolation}`);
    await second`TABLE branded_phone_numbers`;
    await addNumber(first, PHONE);
    await expect(addEntry(second, 'AT&T')).rejects.toThrow('carrier_status_has_number');
    await second`ROLLBACK`;
    await expectDerivedToAgree(first);
  });

  it('cannot add an entry to a number that got another entry after its snapshot', async () => {
    await addNumber(first, PHONE);
    await second.unsafe(`BEGIN ISOLATION LEVEL ${isolation}`);
    await second`TABLE carrier_statuses`;
    await addEntry(first, 'AT&T');
    await expect(addEntry(second, 'Verizon')).rejects.toMatchObject({ code: '40001' });
    await second`ROLLBACK`;
    await expectDerivedToAgree(first);
  });
});

describe('two concurrent sessions', () => {
  it.each([
    ['add two entries of one number', PHONE, 'Verizon'],
    ['add two entries with the same new term', '+19', 'AT&T'],
  ])('can %s', async (_what, phoneNumber, carrier) => {
    await addNumber(first, PHONE);
    await addNumber(first, '+19');
    await first`BEGIN`;
    await addEntry(first, 'AT&T');
    await commitWhileWaiting(addEntry(second, carrier, phoneNumber));
    const entries = (await items(first)).flatMap(({ carrierStatuses }) => carrierStatuses);
    expect(entries.map((entry) => entry.carrier)).toEqual(['AT&T', carrier]);
    await expectDerivedToAgree(first);
  });

  it('can not add more entries to one number together than the contract allows', async () => {
    await addNumber(first, PHONE);
    await first`INSERT INTO carrier_statuses SELECT ${PHONE}, 'Carrier ' || i, 'spamRemediation', 'approved.optIn'
      FROM generate_series(1, 999) AS i`;
    await first`BEGIN`;
    await addEntry(first, 'AT&T');
    await expect(commitWhileWaiting(addEntry(second, 'Verizon'))).rejects.toThrow('more than 1000 carrier statuses');
  });

  it('can delete a number and add it again, which leaves it without entries', async () => {
    await addNumber(first, PHONE);
    await addEntry(first, 'AT&T');
    await first`BEGIN`;
    await first`DELETE FROM branded_phone_numbers WHERE phone_number = ${PHONE}`;
    await commitWhileWaiting(addNumber(second, PHONE));
    expect(await items(first)).toMatchObject([{ phoneNumber: PHONE, status: 'unregistered', carrierStatuses: [] }]);
    await expectDerivedToAgree(first);
  });
});
