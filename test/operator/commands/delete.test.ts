import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { useCommand } from '../../support/command.js';
import { numberWith, write } from '../../support/numbers.js';

const command = useCommand();
const PHONE_NUMBERS = ['+14155550101', '+14155550102', '+14155550103'];

beforeEach(async () => {
  await command.sql`TRUNCATE branded_phone_numbers, carrier_statuses`;
  await write(
    command.drizzle,
    PHONE_NUMBERS.map((phoneNumber) => numberWith({ phoneNumber })),
  );
});

describe('delete', () => {
  it('deletes the numbers in files and standard input, which it reads if no file is named', async () => {
    await writeFile(join(command.folder, 'gone.txt'), '+14155550101\n');
    const { code, stdout, stderr } = await command.run(['delete', 'gone.txt', '-'], '+14155550103');
    expect([code, stdout, stderr]).toEqual([0, 'deleted 2 numbers\n', '']);
    expect(await command.phoneNumbers()).toEqual(['+14155550102']);
    expect(await command.run(['delete'], '+14155550102\n')).toMatchObject({ code: 0, stdout: 'deleted 1 number\n' });
  });

  it('rejects a phone number as an argument, and says how to pass it', async () => {
    const { code, stdout, stderr } = await command.run(['delete', '+14155550101']);
    const advice =
      'delete reads phone numbers from files or standard input: echo +14155550101 | branded-phone-numbers delete\n';
    expect([code, stdout, stderr]).toEqual([1, '', advice]);
    expect(await command.phoneNumbers()).toEqual(PHONE_NUMBERS);
  });

  it('reports the file of a faulty line, if there are several', async () => {
    await writeFile(join(command.folder, 'gone.txt'), '+14155550199\n');
    const { code, stdout, stderr } = await command.run(['delete', '-', 'gone.txt'], '+14155550101');
    expect([code, stdout, stderr]).toEqual([1, '', 'gone.txt line 1: there is no number +14155550199\n']);
  });
});
