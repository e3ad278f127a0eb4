/** Makes input safe to repeat in a message. */
import { contract } from '../contract.js';

/** The length up to which a message repeats a name or a value, in UTF-16 code units. */
const MAX_SHOWN = contract.components.schemas.Fault?.properties?.parameter?.maxLength as number;

/**
 * Characters that are invisible or look like a space: controls, bidirectional marks, variation selectors, halves of
 * surrogate pairs, unassigned and private code points, and every space but U+0020.
 */
const HIDDEN = /[\p{C}\p{Default_Ignorable_Code_Point}]|(?! )\p{Z}/gu;

/** An escape, as `escapeHidden` and `quote` write them, or a character; either is shown whole or not at all. */
const UNIT = /\\(?:u\{[0-9a-f]+\}|u[0-9a-f]{4}|.)|./gsu;

/** Cuts a text to `MAX_SHOWN` code units, between characters or escapes. */
export function cut(text: string): string {
  if (text.length <= MAX_SHOWN) return text;
  let start = '';
  for (const [unit] of text.matchAll(UNIT)) {
    if (start.length + unit.length >= MAX_SHOWN) break;
    start += unit;
  }
  return `${start}…`;
}

/** Escapes hidden characters, such as U+202A as `\u202a`. */
export function escapeHidden(text: string): string {
  return text.replace(HIDDEN, (character) => {
    const code = (character.codePointAt(0) ?? 0).toString(16);
    return SHORT_ESCAPES[character] ?? (code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, '0')}`);
  });
}

const SHORT_ESCAPES: Record<string, string> = { '\b': '\\b', '\t': '\\t', '\n': '\\n', '\f': '\\f', '\r': '\\r' };

/** Returns a value in quotes, escaped as in JSON, and cut. */
export function quote(value: string): string {
  return `"${cut(escapeHidden(value.replace(/["\\]/g, '\\$&')))}"`;
}
