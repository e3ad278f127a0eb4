import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, it } from 'vitest';
import { dice } from '../../scripts/dice.js';
import { packageFolder } from '../../src/packageFolder.js';
import { installNodeAndNpm } from '../installation/nodeAndNpm.js';
import { useDatabase } from '../support/database.js';
import { freshSeed } from '../support/seed.js';
import { expectStop, expectSurvival, expectTimeLimits, inputs } from './strangers.js';

const random = dice(freshSeed());
const sharing = inputs.map(() => (random() < 0.5 ? 22 : 24));
/** The oldest and the newest version, and before a release all of them, have all inputs; 22 and 24 share them, by the seed. */
const inputsOn = (version: number) =>
  process.env.RELEASE === '1' || [20, 26].includes(version)
    ? inputs
    : inputs.filter((_, index) => sharing[index] === version);

// The versions at once, because they mostly wait for time limits.
describe.concurrent.each([20, 22, 24, 26])('the service on Node %i', { timeout: 600_000 }, (version) => {
  const database = useDatabase();
  let node: string;
  beforeAll(async () => {
    const folder = join(packageFolder, '.cache', 'node', `${version}-11`);
    await mkdir(folder, { recursive: true });
    ({ node } = await installNodeAndNpm(folder, version, 11));
  });

  it.sequential('survives connections that are reset or ended in the middle of something, and counts nothing for them', () =>
    expectSurvival(node, database.url, { input: inputsOn(version) }));

  it.sequential('stops in time in the middle of everything that connections may send', () =>
    expectStop(node, database.url));

  it.sequential('closes each connection within its time limits', () => expectTimeLimits(node, database.url));
});
