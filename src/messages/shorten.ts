/** Makes input safe to repeat in a message: shortens it, and escapes invisible characters. */
import { contract } from '../contract.js';

/** The length up to which a message repeats a name or a value, in UTF-16 code units. */
const MAX_SHOWN = contract.components.schemas.Fault?.properties?.parameter?.maxLength as number;

/**
 * Characters that are invisible or look like a space: controls, bidirectional marks, variation selectors, halves of
 * surrogate pairs, unassigned and private code points, and every space but U+0020.
 */
const HIDDEN = /[\p{C}\p{Default_Ignorable_Code_Point}]|(?! )\p{Z}/gu;

/** Returns whether a text has hidden characters. */
export function hasHidden(text: string): boolean {
  return text.search(HIDDEN) >= 0;
}

/** Cuts a text to `MAX_SHOWN` code units, without escapes. */
export function shorten(text: string): string {
  if (text.length <= MAX_SHOWN) return text;
  // A surrogate pair is not cut in half.
  return `${text.slice(0, MAX_SHOWN - 1).replace(/[\ud800-\udbff]$/, '')}…`;
}

/** Returns a text with its hidden characters escaped, such as `\u202a`; for an empty text, two quotes. */
export function printable(text: string): string {
  return text === '' ? "''" : text.replace(HIDDEN, escaped);
}

/** Returns a name as `printable` does, but cut to `MAX_SHOWN` code units. */
export function abridged(name: string): string {
  return name === '' ? "''" : abridge(name, printable);
}

/** Returns a value in quotes, with hidden characters escaped, and cut to `MAX_SHOWN` code units between the quotes. */
export function quoted(value: string): string {
  return `"${abridge(value, (character) => (/["\\]/.test(character) ? `\\${character}` : printable(character)))}"`;
}

/** Returns a value without hidden characters, and with compatibility characters such as a full-width plus replaced. */
export function withoutHidden(value: string): string {
  return value.normalize('NFKC').replace(HIDDEN, '');
}

/** Converts `text` character by character with `show`, and cuts the result to `MAX_SHOWN` code units. */
function abridge(text: string, show: (character: string) => string): string {
  const shown = Array.from(text.slice(0, MAX_SHOWN + 1), show);
  if (shown.join('').length <= MAX_SHOWN) return shown.join('');
  let start = '';
  for (const part of shown) {
    if (start.length + part.length >= MAX_SHOWN) break;
    start += part;
  }
  return `${start}…`;
}

/** Returns a character's escape in JSON's form, such as `\u202a`, or beyond U+FFFF, such as `\u{e0001}`. */
function escaped(character: string): string {
  const json = JSON.stringify(character).slice(1, -1);
  if (json !== character) return json;
  const code = (character.codePointAt(0) ?? 0).toString(16);
  return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, '0')}`;
}
