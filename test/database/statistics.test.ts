import { describe, it } from 'vitest';
import { expectChangeToReadFewBlocks, expectDeletionToReadFewBlocks, useNumbers } from './statistics.js';

useNumbers();

// The soak has the other ones.
describe.each([1 / 5])('with statistics of one row, taken after %d of a first import,', (part) => {
  it('a change reads few blocks', () => expectChangeToReadFewBlocks(part));

  it('deleting stale postings reads few blocks', () => expectDeletionToReadFewBlocks(part));
});
