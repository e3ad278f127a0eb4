import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { packageFolder } from '../../../src/packageFolder.js';

it.each([
  ['a promise that never settles', 'new Promise(() => {})'],
  ['a timer without a reference', 'new Promise((end) => setTimeout(end, 100).unref())'],
])('a command that waits for nothing but %s reports a bug and exits with status 1', async (_what, work) => {
  const program = `
    import { runCommand } from ${JSON.stringify(join(packageFolder, 'dist/src/operator/commands/failure.js'))};
    await runCommand(() => ${work});`;
  const outcome = await new Promise((resolve) => {
    execFile(process.execPath, ['--input-type=module', '--eval', program], (error, _stdout, stderr) =>
      resolve([error?.code, stderr]),
    );
  });
  expect(outcome).toEqual([1, 'exited with work still pending. This is a bug.\n']);
});
