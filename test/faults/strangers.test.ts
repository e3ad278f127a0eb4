import { it } from 'vitest';
import { useDatabase } from '../support/database.js';
import { expectSurvival } from './strangers.js';

const database = useDatabase();

// The soak has the other kinds, other versions of Node, and a stop.
it('the service survives connections that are reset or ended in the middle, and keeps nothing of them', () =>
  expectSurvival(process.execPath, database.url, {
    before: ['a request too early'],
    input: ['nothing', 'garbage', 'CONNECT'],
  }));
