import { expect, it } from 'vitest';
import { useCommand } from '../../support/command.js';
import { expectLine, expectProgress } from './progress.js';

const command = useCommand();

// The soak has the other commands.
it('an import says every ten seconds how far it is, and on a terminal shows a bar instead', async () => {
  const [shown] = await expectProgress(command, [['import changed', /^wrote 0 of 1 number\n/m]], 'import changed');
  expectLine(shown, `${'░'.repeat(20)} wrote 0 of 1 number`);
  expect(shown).toMatch(/\[Kimported 1 number,/);
});
