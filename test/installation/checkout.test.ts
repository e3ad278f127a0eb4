/** `make start` in a fresh checkout, on every supported Node and npm. */
import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { expectDemoPage } from '../support/demo.js';
import { run } from '../support/programs.js';
import { startServer } from '../support/serverProcess.js';
import { useTemporaryFolder } from '../support/temporaryFolder.js';
import { copyCheckout } from './checkout.js';
import { withNodeAndNpm } from './nodeAndNpm.js';

/** Each Node and each npm at least once; npm 12 does not run on Node 20. */
const PAIRS = [
  { node: 20, npm: 10 },
  { node: 22, npm: 11 },
  { node: 24, npm: 12 },
  { node: 26, npm: 12 },
].filter(({ node }) => (process.env.TEST_NODE_VERSIONS ?? String(node)).split(' ').includes(String(node)));

describe.each(PAIRS)('on Node $node with npm $npm', ({ node, npm }) => {
  // The path may have spaces and other letters than ASCII.
  const checkout = useTemporaryFolder('a checkout für Jörg-');

  it('make start serves the demo from a fresh checkout, and leaves nothing running', async () => {
    // A server may set this; npm then leaves out what the build needs, unless it is told otherwise.
    const environment = { ...(await withNodeAndNpm(node, npm)), NODE_ENV: 'production' };
    expect((await run('node', ['--version'], { env: environment })).stdout).toMatch(new RegExp(`^v${node}\\.`));
    expect((await run('npm', ['--version'], { env: environment })).stdout).toMatch(new RegExp(`^${npm}\\.`));
    await copyCheckout(checkout.path);
    const service = await startServer(['make', 'start'], environment, { folder: checkout.path });
    try {
      await expectDemoPage(service.url);
      // "Your own numbers" of the README, while the demo is served; then the command from elsewhere.
      const [, typed = ''] =
        /^## Your own numbers\n+```sh\n(.*?)^```$/ms.exec(await readFile('README.md', 'utf8')) ?? [];
      const elsewhere = 'ln -s ../branded-phone-numbers dist/link && cd / && "$OLDPWD/dist/link" --version';
      const { stdout } = await run('bash', ['-ec', `${typed}\n${elsewhere}`], { cwd: checkout.path, env: environment });
      expect(stdout).toMatch(/^imported 300 numbers, .*\nimported 33 numbers, .*\ndeleted 1 number\n[\d.]+\n$/m);
    } finally {
      await service.stop();
    }
  });
});
