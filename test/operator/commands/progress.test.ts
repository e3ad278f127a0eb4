import { expect, it } from 'vitest';
import { useCommand } from '../../support/command.js';
import { expectLine, expectProgress } from './progress.js';

const command = useCommand();

// The soak has the other commands.
it('an import says every ten seconds how far it is, and on a terminal shows a bar instead', async () => {
  const [shown] = await expectProgress(command, [['import changed', /^wrote 0 of 1 number\n/m]], 'import changed');
  expectLine(shown, `${'░'.repeat(20)} wrote 0 of 1 number`);
  expect(shown).toMatch(/\[Kimported 1 number,/);
  expect(shown).toContain('\r\u001b[Kwaiting for transactions of other programs to end:\r\n');
});

it('a delete on a terminal leaves what a user types', async () => {
  const typing = `(sleep 3; printf +1415; sleep 1; printf '5550100\\n'; sleep 1)`;
  const script = `script --quiet --command "$command delete --if-exists" /dev/null`;
  const { stdout } = await command.shell(`${typing} | ${script}`);
  expect(stdout).toMatch(/\+14155550100\r\n[\s\S]*deleted 0 numbers/);
  expect(stdout).not.toContain('read 0.0 MB');
});
