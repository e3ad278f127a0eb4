/** The encoding of query strings, which is that of forms (application/x-www-form-urlencoded in the URL standard). */

/** Decodes percent-encoding, and each `+` as a space; returns undefined if the encoding is broken. */
export function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return undefined;
  }
}

/** Decodes an already decoded value that seems to have been encoded twice; returns undefined if it does not seem so. */
export function decodedAgain(value: string): string | undefined {
  const decoded = /%[0-9a-f]{2}/i.test(value) ? decode(value) : undefined;
  return decoded === undefined || CONTROL_CHARACTER.test(decoded) ? undefined : decoded;
}

const CONTROL_CHARACTER = /\p{Cc}/u;
