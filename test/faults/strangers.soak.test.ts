import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, it } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { installNodeAndNpm } from '../installation/nodeAndNpm.js';
import { useDatabase } from '../support/database.js';
import { expectStop, expectSurvival, expectTimeLimits } from './strangers.js';

const database = useDatabase();

// Connections are ended one after the other: half a minute on a quiet machine.
describe.each([20, 22, 24, 26])('the service on Node %i', { timeout: 600_000 }, (version) => {
  let node: string;
  beforeAll(async () => {
    const folder = join(packageFolder, '.cache', 'node', `${version}-11`);
    await mkdir(folder, { recursive: true });
    ({ node } = await installNodeAndNpm(folder, version, 11));
  });

  it('survives connections that are reset or ended in the middle of something, and counts nothing for them', () =>
    expectSurvival(node, database.url));

  it('stops in time in the middle of everything that connections may send', () => expectStop(node, database.url));

  it('closes each connection within its time limits', () => expectTimeLimits(node, database.url));
});
