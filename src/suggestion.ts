/** "Did you mean …?" */
import { distance } from 'fastest-levenshtein';

/** The most characters that are compared: the distance of two texts takes as long as their lengths' product. */
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
    // A wrong case or separator counts as one slip, however many letters it touches.
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

/** A name without its case and its word separators, which people write differently. */
export function plain(text: string): string {
  return text.toLowerCase().replace(/[^a-z0-9/]/g, '');
}
