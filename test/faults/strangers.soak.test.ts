import { beforeAll, describe, it } from 'vitest';
import { dice } from '../../scripts/dice.js';
import { installNode } from '../installation/nodeAndNpm.js';
import { useDatabase } from '../support/database.js';
import { freshSeed } from '../support/seed.js';
import { expectStop, expectSurvival, expectTimeLimits } from './strangers.js';

const random = dice(freshSeed());
/** Before a release, all versions; otherwise, an older and a newer one, by the seed. */
const versions = process.env.RELEASE === '1' ? [20, 22, 24, 26] : [random() < 0.5 ? 20 : 22, random() < 0.5 ? 24 : 26];

// The versions at once, because they mostly wait for time limits.
describe.concurrent.each(versions)('the service on Node %i', { timeout: 600_000 }, (version) => {
  const database = useDatabase();
  let node: string;
  beforeAll(async () => {
    node = await installNode(version);
  }, 600_000);

  it.sequential('survives connections that are reset or ended in the middle of something, and keeps nothing of them', () =>
    expectSurvival(node, database.url));

  it.sequential('stops in time in the middle of everything that connections may send', () =>
    expectStop(node, database.url));

  it.sequential('closes each connection within its time limits', () => expectTimeLimits(node, database.url));
});
