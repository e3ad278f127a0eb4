/** `make start` in a fresh checkout, on every Node that we support and every npm that is in use. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { expectDemoPage, startIn } from '../support/installedService.js';
import { copyCheckout } from './checkout.js';
import { withNodeAndNpm } from './nodeAndNpm.js';

const run = promisify(execFile);

/** Each Node and each npm at least once; npm 12 does not run on Node 20. */
const PAIRS = [
  { node: 20, npm: 10 },
  { node: 22, npm: 11 },
  { node: 24, npm: 12 },
  { node: 26, npm: 12 },
].filter(({ node }) => (process.env.TEST_NODE_VERSIONS ?? String(node)).split(' ').includes(String(node)));

let checkout: string;
beforeEach(async () => {
  // Whatever a folder's name may hold.
  checkout = await mkdtemp(join(tmpdir(), 'a checkout für Jörg-'));
});
afterEach(() => rm(checkout, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 }));

describe.each(PAIRS)('on Node $node with npm $npm', ({ node, npm }) => {
  it('make start serves the demo from a fresh checkout, and leaves nothing running', async () => {
    const environment = await withNodeAndNpm(node, npm);
    expect((await run('node', ['--version'], { env: environment })).stdout).toMatch(new RegExp(`^v${node}\\.`));
    expect((await run('npm', ['--version'], { env: environment })).stdout).toMatch(new RegExp(`^${npm}\\.`));
    await copyCheckout(checkout);
    const service = await startIn(checkout, ['make', 'start'], environment);
    try {
      await expectDemoPage(service.url);
    } finally {
      await service.stop();
    }
  });
});
