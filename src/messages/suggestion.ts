/** "Did you mean …?" */
import { distance } from 'fastest-levenshtein';

/** The most characters that are compared: the time to compare two texts grows with the product of their lengths. */
const MAX_COMPARED = 100;

/** The candidate that `text` is most likely a typo of, if any is close enough, with at most `most` slips. */
export function nearest(
  text: string,
  candidates: Iterable<string>,
  most = Number.POSITIVE_INFINITY,
): string | undefined {
  if (text.length > MAX_COMPARED) return undefined;
  let best: { candidate: string; slips: number } | undefined;
  for (const candidate of candidates) {
    // Wrong case or wrong separators count as one slip, no matter how many letters they affect.
    const slips = plain(text) === plain(candidate) ? 1 : distance(text, candidate);
    if (
      slips <= Math.min(most, Math.max(2, candidate.length / 3)) &&
      slips < (best?.slips ?? Number.POSITIVE_INFINITY)
    ) {
      best = { candidate, slips };
    }
  }
  return best?.candidate;
}

/** A name without its case and word separators, which vary. */
export function plain(text: string): string {
  return text.toLowerCase().replace(/[^a-z0-9/]/g, '');
}
