/** Finds the name that a misspelled one was probably meant to be: "did you mean …?" */
import { distance } from 'fastest-levenshtein';

/** The length of the longest text that is compared: the time grows with the product of both texts' lengths. */
const MAX_COMPARED = 100;

/** Returns the candidate closest to `text`, if `text` may be a misspelling of it. */
export function nearest(text: string, candidates: Iterable<string>): string | undefined {
  if (text.length > MAX_COMPARED) return undefined;
  let closest: string | undefined;
  let fewestTypos = Number.POSITIVE_INFINITY;
  for (const candidate of candidates) {
    // Wrong case or wrong separators count as one typo, no matter how many letters they affect.
    const typos = plain(text) === plain(candidate) ? 1 : distance(text, candidate);
    if (typos > Math.max(2, candidate.length / 3) || typos >= fewestTypos) continue;
    closest = candidate;
    fewestTypos = typos;
  }
  return closest;
}

/** Returns a name in lower case and without word separators, for comparison. */
export function plain(text: string): string {
  return text.toLowerCase().replace(/[^a-z0-9/]/g, '');
}
