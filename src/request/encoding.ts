/** The encoding of query strings: that of forms (the URL standard's application/x-www-form-urlencoded). */

/** Undoes percent-encoding and turns each `+` into a space. Undefined where the encoding is broken. */
export function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return undefined;
  }
}

/** What a decoded value would mean if it had been encoded twice; undefined where it looks encoded only once. */
export function decodedAgain(value: string): string | undefined {
  const decoded = /%[0-9a-f]{2}/i.test(value) ? decode(value) : undefined;
  return decoded === undefined || CONTROL_CHARACTER.test(decoded) ? undefined : decoded;
}

const CONTROL_CHARACTER = /\p{Cc}/u;
