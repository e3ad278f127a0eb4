/** What users sent, as messages repeat it. */
import { contract } from '../contract.js';

/** The most characters of a name or a value that are repeated in a message. */
const MAX_SHOWN = contract.components.schemas.Fault?.properties?.parameter?.maxLength as number;

/**
 * Characters that can't be seen, or not be told from a space: controls, bidirectional marks, variation selectors, halves of
 * surrogate pairs, what is unassigned or private, and every space but U+0020.
 */
const HIDDEN = /[\p{C}\p{Default_Ignorable_Code_Point}]|(?! )\p{Z}/gu;

/** Whether a text has characters that can't be seen. */
export function hasHidden(text: string): boolean {
  return text.search(HIDDEN) >= 0;
}

/** Returns a name exactly as it was sent, at most `MAX_SHOWN` UTF-16 code units of it. */
export function shorten(text: string): string {
  if (text.length <= MAX_SHOWN) return text;
  // Half of a surrogate pair is not a character.
  return `${text.slice(0, MAX_SHOWN - 1).replace(/[\ud800-\udbff]$/, '')}…`;
}

/** Returns a text from outside with each character that can't be seen as its escape, such as `\u202a`. */
export function printable(text: string): string {
  return text === '' ? "''" : text.replace(HIDDEN, escaped);
}

/** Returns a name from outside for a message: printable, and at most `MAX_SHOWN` UTF-16 code units long. */
export function abridged(name: string): string {
  return name === '' ? "''" : abridge(name, printable);
}

/** Returns a value from outside for a message: in quotes, printable, with at most `MAX_SHOWN` code units between them. */
export function quoted(value: string): string {
  return `"${abridge(value, (character) => (/["\\]/.test(character) ? `\\${character}` : printable(character)))}"`;
}

/** Returns a value without what can't be seen, and with compatible characters replaced, such as a full-width plus. */
export function withoutHidden(value: string): string {
  return value.normalize('NFKC').replace(HIDDEN, '');
}

/** Shows `text` character by character, and leaves out the end if that would be longer than `MAX_SHOWN`. */
function abridge(text: string, show: (character: string) => string): string {
  const shown = Array.from(text.slice(0, MAX_SHOWN + 1), show);
  if (shown.join('').length <= MAX_SHOWN) return shown.join('');
  let start = '';
  for (const each of shown) {
    if (start.length + each.length >= MAX_SHOWN) break;
    start += each;
  }
  return `${start}…`;
}

/** As JSON escapes it, if JSON does; code points beyond U+FFFF as `\u{e0001}`. */
function escaped(character: string): string {
  const json = JSON.stringify(character).slice(1, -1);
  if (json !== character) return json;
  const code = (character.codePointAt(0) ?? 0).toString(16);
  return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, '0')}`;
}
