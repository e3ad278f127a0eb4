import { describe, it } from 'vitest';
import { useDatabase } from '../support/database.js';
import { expectStop, expectSurvival } from './strangers.js';

const database = useDatabase();

// The soak has the other kinds, and other versions of Node.
describe('the service', () => {
  it('survives connections that are reset or ended in the middle of something, and keeps nothing of them', () =>
    expectSurvival(process.execPath, database.url, {
      before: ['a request too early'],
      input: ['nothing', 'garbage', 'CONNECT'],
    }));

  it('stops in time in the middle of everything that connections may send', () =>
    expectStop(process.execPath, database.url));
});
