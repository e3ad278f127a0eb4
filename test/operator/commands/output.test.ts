import { describe, expect, it } from 'vitest';
import { expectFailure, LIMITED, useLimited } from './output.js';

const command = useLimited();

// The soak has the other commands.
describe('a command', () => {
  it.each(['keys create --name lost', 'import line.ndjson'])(
    'fails if standard output takes only a part of what it writes: %s',
    (args) => expectFailure(command, args),
  );

  it('fails if its output is cut off after some pages', async () => {
    const { code, stderr } = await command.shell(`${LIMITED} exec $command export > output`);
    expect([code, stderr]).toEqual([1, expect.not.stringContaining('exported')]);
  });
});

it('keys create leaves no key that works if only a part of it was written', async () => {
  const { stdout } = await command.run(['keys', 'list', '--json']);
  const lost = stdout.split('\n').filter((line) => line.includes('"lost"'));
  expect(lost.map((line) => JSON.parse(line).state)).toEqual(['revoked']);
});
