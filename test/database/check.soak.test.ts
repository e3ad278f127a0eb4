/** `check` of more numbers than a pool of connections has batches for. */
import { expect, test } from 'vitest';
import { useCommand } from '../commands/command.js';
import { connectTo } from '../connection.js';

const command = useCommand();

test('check and check --repair come to their end with 110,000 numbers', async () => {
  const sql = connectTo(command.databaseUrl);
  await sql.begin(async (transaction) => {
    await transaction`SET LOCAL session_replication_role = replica`;
    await transaction`INSERT INTO business_profiles VALUES (gen_random_uuid(), 'Circle Bank', 'approved')`;
    await transaction`
      INSERT INTO branded_phone_numbers (phone_number, business_profile_id)
      SELECT '+1500' || 1000000 + i, profile.id FROM generate_series(1, 110000) AS i, business_profiles AS profile`;
  });
  const first = [1, 2, 3, 4, 5].map((i) => `+1500100000${i}`);
  const found = `110000 numbers differ from what they are derived from: ${first.join(', ')}, …\n`;
  expect(await command.run(['check'])).toMatchObject({ code: 1, stdout: '', stderr: found });
  const stdout = `repaired: ${found}all that is derived is right\n`;
  expect(await command.run(['check', '--repair'])).toMatchObject({ code: 0, stdout, stderr: '' });
  expect(await command.run(['check'])).toMatchObject({ code: 0, stdout: 'all that is derived is right\n', stderr: '' });
  await sql.end();
}, 300_000);
