import { it } from 'vitest';
import { useCommand } from '../../support/command.js';
import { expectLine, expectProgress } from './progress.js';

const command = useCommand();

it('a command says every ten seconds how far it is, and an export on a terminal shows it in one line', async () => {
  const [shown] = await expectProgress(
    command,
    [
      ['import input', /^read 0\.0 MB\n/m],
      ['delete gone', /^wrote 1 of 2 numbers\n/m],
      ['check', /^checked \d+ of \d+ numbers\n/m],
      ['export output', /^exported 0 numbers so far\n/m],
    ],
    'export output',
  );
  expectLine(shown, 'exported 0 numbers so far');
});
