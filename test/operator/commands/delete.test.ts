import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { closeDatabase, type Database, openDatabase } from '../../../src/database/connect.js';
import { useCommand } from '../../support/command.js';
import { numberWith, write } from '../../support/numbers.js';

const command = useCommand();
const PHONE_NUMBERS = ['+14155550101', '+14155550102', '+14155550103'];

let database: Database;
beforeAll(() => {
  database = openDatabase(command.databaseUrl);
});
afterAll(() => closeDatabase(database));
beforeEach(async () => {
  await database.$client`TRUNCATE branded_phone_numbers, carrier_statuses`;
  await write(
    database,
    PHONE_NUMBERS.map((phoneNumber) => numberWith({ phoneNumber })),
  );
});

async function numbersLeft(): Promise<string[]> {
  const rows = await database.$client`SELECT phone_number FROM branded_phone_numbers ORDER BY phone_number`;
  return rows.map(({ phone_number }) => phone_number);
}

describe('delete', () => {
  it('deletes the numbers of files and of standard input', async () => {
    await writeFile(join(command.folder, 'gone.txt'), '+14155550101\n');
    const { code, stdout, stderr } = await command.run(['delete', 'gone.txt', '-'], '+14155550103');
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: 'deleted 2 numbers\n', stderr: '' });
    expect(await numbersLeft()).toEqual(['+14155550102']);
  });

  it('reads standard input if no file is named', async () => {
    expect(await command.run(['delete'], '+14155550102\n')).toMatchObject({ code: 0, stdout: 'deleted 1 numbers\n' });
  });

  it('says how to pass phone numbers if one is given as an argument', async () => {
    const { code, stdout, stderr } = await command.run(['delete', '+14155550101']);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toBe(
      'delete reads phone numbers from files or standard input: echo +14155550101 | branded-phone-numbers delete\n',
    );
    expect(await numbersLeft()).toEqual(PHONE_NUMBERS);
  });

  it('deletes nothing if a line is faulty, and reports it, with its file if there are several', async () => {
    await writeFile(join(command.folder, 'a.txt'), '+14155550101\n+14155550102\n');
    await writeFile(join(command.folder, 'b.txt'), '+14155550199\n+14155550102\n');
    const { code, stdout, stderr } = await command.run(['delete', 'a.txt', 'b.txt']);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr.trim().split('\n')).toEqual([
      'b.txt line 1: there is no number +14155550199',
      'b.txt line 2: +14155550102 is already on a.txt line 2',
    ]);
    expect(await numbersLeft()).toEqual(PHONE_NUMBERS);
  });

  it('fails if there are no phone numbers, except with --allow-empty', async () => {
    const { code, stdout, stderr } = await command.run(['delete']);
    expect([code, stdout]).toEqual([1, 'deleted 0 numbers\n']);
    expect(stderr).toContain('--allow-empty');
    expect(await command.run(['delete', '--allow-empty'])).toMatchObject({ code: 0, stdout: 'deleted 0 numbers\n' });
  });
});
