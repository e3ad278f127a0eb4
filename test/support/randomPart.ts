import fc from 'fast-check';
import { inject } from 'vitest';
import { freshSeed } from './seed.js';

/** Returns all of these cases in CI, or else a random quarter of them. */
export function randomPart<T>(cases: T[]): T[] {
  const length = Math.ceil(cases.length * Math.min(1, 2 * inject('tries')));
  const [part = []] = fc.sample(fc.shuffledSubarray(cases, { minLength: length, maxLength: length }), {
    numRuns: 1,
    seed: freshSeed(),
  });
  return part;
}
