/** What users sent, as messages repeat it. */
import { contract } from '../contract.js';

/** The most characters of a name or a value that are repeated in a message. */
const MAX_SHOWN = contract.components.schemas.Fault?.properties?.parameter?.maxLength as number;

/** What a client sent, short enough to be repeated in a message: at most `MAX_SHOWN` UTF-16 code units. */
export function shorten(text: string): string {
  if (text.length <= MAX_SHOWN) return text;
  // Half of a surrogate pair is not a character.
  return `${text.slice(0, MAX_SHOWN - 1).replace(/[\ud800-\udbff]$/, '')}…`;
}

/** A name from outside, without characters that could control a terminal or break a line. */
export function printable(name: string): string {
  return name === '' ? "''" : name.replace(/\p{C}|[\p{Zl}\p{Zp}]/gu, '\ufffd');
}
