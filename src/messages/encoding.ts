/** Decodes query strings: application/x-www-form-urlencoded, as the URL standard defines it. */

/** Decodes percent-encoding and turns each `+` into a space. Returns undefined if the encoding is broken. */
export function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return undefined;
  }
}

/** Decodes a decoded value once more if it seems to have been encoded twice; otherwise returns undefined. */
export function decodeAgain(value: string): string | undefined {
  // No value has control characters, so a text with `%0A` was not encoded twice.
  const decoded = /%[0-9a-f]{2}/i.test(value) ? decode(value) : undefined;
  return decoded === undefined || /\p{Cc}/u.test(decoded) ? undefined : decoded;
}
