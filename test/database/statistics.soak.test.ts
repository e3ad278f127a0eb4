import { describe, it } from 'vitest';
import { expectChangeToReadFewBlocks, expectDeletionToReadFewBlocks, useNumbers } from './statistics.js';

useNumbers();

describe.each([1 / 100, 1])('with statistics of one row, taken after %d of a first import,', (part) => {
  it('a change reads few blocks', () => expectChangeToReadFewBlocks(part));

  it('deleting stale postings reads few blocks', () => expectDeletionToReadFewBlocks(part));
});
