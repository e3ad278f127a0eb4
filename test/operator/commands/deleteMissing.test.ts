/** `import --delete-missing`: the files have all numbers. */
import { beforeEach, describe, expect, it } from 'vitest';
import { Stopped } from '../../../src/operator/commands/signals.js';
import { useCommand } from '../../support/command.js';
import { connectTo } from '../../support/connection.js';
import { ndjson } from '../../support/ndjson.js';
import { numberWith, write } from '../../support/numbers.js';
import { until } from '../../support/until.js';

const command = useCommand();
const numbers = (...phoneNumbers: string[]) => phoneNumbers.map((phoneNumber) => numberWith({ phoneNumber }));
const importAll = (file: string, ...options: string[]) =>
  command.run(['import', '--delete-missing', ...options, '-'], file);

beforeEach(async () => {
  await command.sql`TRUNCATE business_profiles, branded_phone_numbers, carrier_statuses`;
  await write(command.drizzle, numbers('+11', '+12', '+13', '+14'));
});

describe('import --delete-missing', () => {
  it('deletes the numbers that the input does not have, if these are at most half of those before', async () => {
    const stdout = 'imported 3 numbers, 0 carrier statuses, deleted 2 numbers\n';
    expect(await importAll(ndjson(numbers('+13', '+14', '+15')))).toMatchObject({ code: 0, stdout });
    expect(await command.phoneNumbers()).toEqual(['+13', '+14', '+15']);
  });

  it.each([
    ['nothing', 4, []],
    ['too few numbers', 3, numbers('+11', '+15')],
    ['many numbers, but too few of those before', 3, numbers('+14', '+15', '+16', '+17', '+18', '+19')],
  ])('changes nothing without --force if the input has %s', async (_, gone, list) => {
    const share = `${gone} of the 4 numbers that exist are not in the input, more than half; nothing was changed: pass`;
    const stderr = expect.stringContaining(`${share} --force if they are to be deleted\n`);
    expect(await importAll(ndjson(list))).toMatchObject({ code: 1, stdout: '', stderr });
    expect(await command.phoneNumbers()).toEqual(['+11', '+12', '+13', '+14']);
    const stdout = `imported ${list.length} numbers, 0 carrier statuses, deleted ${gone} numbers\n`;
    expect(await importAll(ndjson(list), '--force')).toMatchObject({ code: 0, stdout });
    expect(await command.phoneNumbers()).toEqual(list.map(({ phoneNumber }) => phoneNumber));
  });

  it('changes nothing if a line is faulty, even with --force', async () => {
    expect(await importAll(`${ndjson(numbers('+11'))}nonsense\n`, '--force')).toMatchObject({ code: 1, stdout: '' });
    expect(await command.phoneNumbers()).toEqual(['+11', '+12', '+13', '+14']);
  });

  it('keeps what another program adds meanwhile, and is finished by the next run if it ends early', async () => {
    const holder = connectTo(command.databaseUrl);
    await holder`BEGIN`;
    await holder`SELECT FROM branded_phone_numbers WHERE phone_number = '+12' FOR UPDATE`;
    const [file, stop] = [ndjson(numbers('+13', '+14', '+15')), new AbortController()];
    const running = command.run(['import', '--delete-missing', '-'], file, { stop: stop.signal });
    await until(async () => !(await command.phoneNumbers()).includes('+11'), 'it deletes');
    await write(command.drizzle, numbers('+19'));
    stop.abort(new Stopped('SIGTERM'));
    const stderr = expect.stringContaining(
      '\nimported 3 of 3 numbers and deleted 1 of 2 numbers; run the same import ',
    );
    expect(await running).toMatchObject({ code: 143, stdout: '', stderr });
    await holder.end();
    expect(await command.phoneNumbers()).toEqual(['+12', '+13', '+14', '+15', '+19']);
    expect((await importAll(file)).stdout).toBe('imported 3 numbers, 0 carrier statuses, deleted 2 numbers\n');
    expect(await command.phoneNumbers()).toEqual(['+13', '+14', '+15']);
  });

  it('is needed for --force', async () => {
    expect(await command.run(['import', '--force', '-'])).toMatchObject({
      code: 1,
      stderr: '--force has no effect without --delete-missing\n',
    });
  });
});
