/** Finds the name that a misspelled one was probably meant to be: "did you mean …?" */
import { distance } from 'fastest-levenshtein';

/** The longest text that is compared: the time to compare two texts grows with the product of their lengths. */
const MAX_COMPARED = 100;

/** Returns the candidate that is closest to `text`, if it is close enough to be a misspelling with at most `maxTypos` typos. */
export function nearest(
  text: string,
  candidates: Iterable<string>,
  maxTypos = Number.POSITIVE_INFINITY,
): string | undefined {
  if (text.length > MAX_COMPARED) return undefined;
  let best: { candidate: string; typos: number } | undefined;
  for (const candidate of candidates) {
    // Wrong case or wrong separators count as one typo, no matter how many letters they affect.
    const typos = plain(text) === plain(candidate) ? 1 : distance(text, candidate);
    if (
      typos <= Math.min(maxTypos, Math.max(2, candidate.length / 3)) &&
      typos < (best?.typos ?? Number.POSITIVE_INFINITY)
    ) {
      best = { candidate, typos };
    }
  }
  return best?.candidate;
}

/** Returns a name in lower case and without word separators. */
export function plain(text: string): string {
  return text.toLowerCase().replace(/[^a-z0-9/]/g, '');
}
