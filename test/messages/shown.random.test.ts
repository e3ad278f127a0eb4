/** How messages show text from requests and other input. */
import fc from 'fast-check';
import { describe, expect, inject, it } from 'vitest';
import { cut, escapeHidden, quote } from '../../src/messages/shown.js';

const MAX_SHOWN = 100;
/** Text without control, format, private or unassigned characters, and without spaces but U+0020. */
const VISIBLE = /^(?:(?![\p{C}\p{Z}\p{Default_Ignorable_Code_Point}]).| )*$/u;
const hidden = fc.constantFrom(
  ...['\u202a', '\u200b', '\u00a0', '\ufeff', '\u00ad', '\u2028', '\ufe0f', '\u0378', '\u3164', '\u0085', '\0', '\x7f'],
  ...['\u{e0001}', '\u{e0100}', '\ue000', '\ud83d', '\udc00', '\n', '\t', '\u3000'],
);
const texts = fc.string({ unit: fc.oneof(hidden, fc.constantFrom(...'a"\\é＋🏦'), fc.string({ unit: 'binary' })) });
const anyText = fc.oneof(
  texts,
  fc.tuple(texts, fc.integer({ min: 1, max: 200 })).map(([text, times]) => text.repeat(times)),
);

describe('text from the input', () => {
  it('is shown with its hidden characters escaped, and cut to the maximum length between characters or escapes', () => {
    fc.assert(
      fc.property(anyText, (text) => {
        for (const shown of [escapeHidden(text), cut(escapeHidden(text)), quote(text)]) expect(shown).toMatch(VISIBLE);
        expect(cut(escapeHidden(text)).length).toBeLessThanOrEqual(MAX_SHOWN);
        const inQuotes = quote(text).slice(1, -1);
        expect(inQuotes.length).toBeLessThanOrEqual(MAX_SHOWN);
        const whole = inQuotes.endsWith('…') && !text.endsWith('…') ? inQuotes.slice(0, -1) : inQuotes;
        const json = whole.replace(/\\u\{(\w+)\}/g, (_escape, code) =>
          JSON.stringify(String.fromCodePoint(Number.parseInt(code, 16))).slice(1, -1),
        );
        expect(text.startsWith(JSON.parse(`"${json}"`))).toBe(true);
      }),
      { numRuns: Math.min(3000, 6000 * inject('tries')) },
    );
  });

  it.each([
    ['+1415\u202a', '"+1415\\u202a"'],
    ['a\u00a0b\u200d', '"a\\u00a0b\\u200d"'],
    ['\ufeff\u{e0001}', '"\\ufeff\\u{e0001}"'],
    ['"\\u202a"', '"\\"\\\\u202a\\""'],
    ['＋1\n', '"＋1\\n"'],
    ['', '""'],
  ])('is quoted: %j', (text, shown) => {
    expect(quote(text)).toBe(shown);
  });
});
