/** `check` reports each difference between the read model and its sources, and repairs it with `--repair`. */
import { beforeEach, describe, expect, it } from 'vitest';
import { useCommand } from '../support/command.js';
import { useConnection } from '../support/connection.js';
import { expectDerivedToAgree } from '../support/derived.js';
import { entryWith, numberWith, PROFILES, write } from '../support/numbers.js';
import { until } from '../support/until.js';

const command = useCommand();
const sql = () => command.sql;
/** +14155550101 to +14155550109. */
const PHONE_NUMBERS = Array.from({ length: 9 }, (_, i) => `+1415555010${i + 1}`);
const at = (digit: number) => `phone_number = '+1415555010${digit}'`;

beforeEach(async () => {
  await sql()`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
  await write(
    command.drizzle,
    PHONE_NUMBERS.map((phoneNumber, i) =>
      numberWith({
        phoneNumber,
        carrierStatuses: i === 8 ? [] : [entryWith(`Carrier ${i + 1}`, 'brandedCallerId', 'approved.optIn')],
      }),
    ),
  );
});

/** Returns every row of the read model. */
const readModel = () =>
  sql()`
    SELECT items::text AS row FROM items UNION ALL SELECT terms::text FROM terms UNION ALL SELECT postings::text FROM postings
    ORDER BY row`;

const OK = 'OK: the read model matches its sources\n';
const differ = (numbers: string[], count = numbers.length) =>
  `${count === 1 ? '1 number differs from its sources' : `${count} numbers differ from their sources`}: ${numbers.slice(0, 5).join(', ')}${count > 5 ? ', …' : ''}\n`;
const stray = (numbers: string[]) =>
  `${numbers.length === 1 ? '1 number has' : `${numbers.length} numbers have`} stale index entries: ${numbers.join(', ')}\n`;
const phoneNumbersAt = (...digits: number[]) => digits.map((digit) => `+1415555010${digit}`);

describe('check', () => {
  it.each([
    [
      'changed, missing and surplus items',
      [
        `UPDATE items SET item_tail = '' WHERE ${at(1)}`,
        `DELETE FROM items WHERE ${at(2)}`,
        `INSERT INTO items SELECT '+19', gen_random_uuid(), business_profile_id, NULL, NULL, status, '{}', item_tail, updated_at
         FROM items WHERE ${at(3)}`,
        `UPDATE items SET status = 'rejected' WHERE ${at(4)}`,
        `UPDATE items SET updated_at = '2020-01-01' WHERE ${at(5)}`,
      ],
      differ([...phoneNumbersAt(1, 2, 4, 5), '+19']),
    ],
    [
      'changed and missing index entries',
      [
        `UPDATE items SET reporting_group = 'x' WHERE ${at(1)}`,
        `UPDATE items SET term_ids = '{}' WHERE ${at(2)}`,
        `DELETE FROM postings WHERE ${at(3)}`,
        `UPDATE postings SET reporting_group = 'x' WHERE ${at(4)}`,
        `DELETE FROM terms WHERE carrier = 'Carrier 5'`,
        `UPDATE terms SET carrier = 'x' WHERE carrier = 'Carrier 6'`,
        `UPDATE items SET business_profile_id = gen_random_uuid() WHERE ${at(9)}`,
      ],
      differ(phoneNumbersAt(1, 2, 3, 4, 5), 7),
    ],
    ['one changed item', [`UPDATE items SET item_tail = '' WHERE ${at(1)}`], differ(phoneNumbersAt(1))],
    [
      'an index entry of a number that is gone',
      [`INSERT INTO postings SELECT term_id, '+19', business_profile_id FROM postings WHERE ${at(3)}`],
      stray(['+19']),
    ],
    ['items missing after a TRUNCATE', ['TRUNCATE items, terms, postings'], differ(PHONE_NUMBERS, 9)],
    [
      'sources that changed without their triggers',
      [
        'SET session_replication_role = replica',
        `UPDATE carrier_statuses SET carrier = 'x' WHERE ${at(1)}`,
        `DELETE FROM carrier_statuses WHERE ${at(2)}`,
        `DELETE FROM branded_phone_numbers WHERE ${at(9)}`,
        'RESET session_replication_role',
      ],
      differ(phoneNumbersAt(1, 2, 9)),
    ],
  ])('reports %s, and corrects them only with --repair', async (_what, statements, found) => {
    for (const statement of statements) await sql().unsafe(statement);
    const before = await readModel();
    const checked = await command.run(['check']);
    expect(checked).toMatchObject({ code: 1, stdout: '' });
    expect(checked.stderr).toContain(found);
    expect(await readModel()).toEqual(before);
    const repaired = await command.run(['check', '--repair']);
    expect(repaired).toMatchObject({ code: 0, stderr: '' });
    expect(repaired.stdout).toContain(`repaired: ${found}`);
    expect(repaired.stdout.endsWith(OK)).toBe(true);
    await expectDerivedToAgree(sql());
  });

  it('shows five examples and repairs all numbers if they are in different batches', async () => {
    await sql()`
      INSERT INTO branded_phone_numbers (phone_number, business_profile_id)
      SELECT '+1500' || 1000000 + i, ${PROFILES[0]?.id ?? ''} FROM generate_series(1, 5001) AS i`;
    const missing = ['+15001000001', '+15001000002', '+15001002500', '+15001005000', '+15001005001'];
    await sql().unsafe(`DELETE FROM items WHERE phone_number = ANY ('{${missing}}')`);
    expect(await command.run(['check'])).toMatchObject({ code: 1, stderr: differ(missing) });
    const stdout = `repaired: ${differ(missing)}${OK}`;
    expect(await command.run(['check', '--repair'])).toMatchObject({ code: 0, stdout });
    expect(await command.run(['check'])).toMatchObject({ code: 0, stdout: OK, stderr: '' });
  });

  it('does not report a number that other programs delete, and insert again while it is derived', async () => {
    const [deleting, inserting] = [useConnection(command.databaseUrl), useConnection(command.databaseUrl)];
    const isAwaited = (table: string) => `
      SELECT FROM pg_locks WHERE relation = '${table}'::regclass AND NOT granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;
    const untilAwaited = (table: string) => until(async () => (await sql().unsafe(isAwaited(table))).length > 0, table);
    await deleting.unsafe('BEGIN; LOCK TABLE branded_phone_numbers IN EXCLUSIVE MODE');
    const checking = command.run(['check']);
    // Then `check` has listed all numbers.
    await untilAwaited('branded_phone_numbers');
    await deleting.unsafe(`DELETE FROM branded_phone_numbers WHERE ${at(9)}`);
    // Commits while derive() waits after the first of the statements by which it compares.
    const inserted = inserting
      .unsafe(`
      BEGIN; LOCK TABLE terms IN ACCESS EXCLUSIVE MODE;
      INSERT INTO branded_phone_numbers (phone_number, business_profile_id)
      VALUES ('${PHONE_NUMBERS[8]}', '${PROFILES[0]?.id}');
      DO $$ BEGIN WHILE NOT EXISTS (${isAwaited('terms')}) LOOP PERFORM pg_sleep(0.001); END LOOP; END $$; COMMIT`)
      .execute();
    await untilAwaited('terms');
    await deleting.unsafe('COMMIT');
    expect(await checking).toMatchObject({ code: 0, stdout: OK, stderr: '' });
    await inserted;
  });

  it('deletes stale postings in batches', async () => {
    await sql()`INSERT INTO postings SELECT i, phone_number, id FROM items, generate_series(1, 3000) AS i`;
    const found = stray(PHONE_NUMBERS);
    const shown = found.replace(/(, \+\d+){4}\n$/, ', …\n');
    expect(await command.run(['check'])).toMatchObject({ code: 1, stderr: shown });
    expect(await command.run(['check', '--repair'])).toMatchObject({ code: 0, stdout: `repaired: ${shown}${OK}` });
    await expectDerivedToAgree(sql());
  });
});
