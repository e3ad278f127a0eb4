import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';

it.each([
  ['for ever', 'new Promise(() => {})'],
  ['for a timer that keeps nothing running', 'new Promise((end) => setTimeout(end, 100).unref())'],
])('a command that waits %s says so and fails, instead of ending without a word', async (_what, work) => {
  const program = `
    import { runToItsEnd } from ${JSON.stringify(join(packageFolder, 'dist/src/commands/failure.js'))};
    await runToItsEnd(() => ${work});`;
  const outcome = await new Promise((resolve) => {
    execFile(process.execPath, ['--input-type=module', '--eval', program], (error, _stdout, stderr) =>
      resolve([error?.code, stderr]),
    );
  });
  expect(outcome).toEqual([1, expect.stringMatching(/^The command stopped halfway: .*\n$/)]);
});
