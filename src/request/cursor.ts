/**
 * The cursor: where a page ended, and for which filter. It holds nothing that the page itself doesn't show, so it needs
 * no secret. Its checksum guards against damage, not against forgery: every request is filtered and authenticated
 * again, so a forged cursor grants nothing, and what it holds is checked like the parameter `phoneNumber`. It names a
 * phone number, not a row, so it outlives the row.
 */
import { hash } from 'node:crypto';
import { parameters } from '../contract.js';
import type { Filter } from './filter.js';

/** Raise it when the order of the pages changes, so that older cursors are refused and not misread. */
const VERSION = 1;
/** The bytes kept of two SHA-256 digests: the filter's, and the checksum of all that comes before it. */
const DIGEST_BYTES = 8;
/** Bytes before the phone number: the version and the filter's digest. */
const HEAD_BYTES = 1 + DIGEST_BYTES;
const E164 = new RegExp(parameters.get('phoneNumber')?.schema.pattern as string, 'u');

/** The cursor of the page after `phoneNumber`; unreserved characters only (RFC 3986 section 2.3). */
export function encodeCursor(phoneNumber: string, filter: Filter): string {
  const content = Buffer.concat([Buffer.of(VERSION), digestOf(filter), Buffer.from(phoneNumber.slice(1))]);
  return Buffer.concat([content, digest(content)]).toString('base64url');
}

export type Cursor = NonNullable<ReturnType<typeof decodeCursor>>;

/** Reads a cursor: after which phone number the page begins, and for which filter; undefined where it is damaged. */
export function decodeCursor(text: string) {
  const bytes = Buffer.from(text, 'base64url');
  const content = bytes.subarray(0, -DIGEST_BYTES);
  const after = `+${content.toString('latin1', HEAD_BYTES)}`;
  // The last character of base64url can carry bits that no byte holds: without the first test they could be altered.
  const isIntact =
    bytes.toString('base64url') === text &&
    content[0] === VERSION &&
    digest(content).equals(bytes.subarray(-DIGEST_BYTES)) &&
    E164.test(after);
  if (!isIntact) return undefined;
  return { after, isFor: (filter: Filter) => digestOf(filter).equals(content.subarray(1, HEAD_BYTES)) };
}

/** The digests of filters: many pages are read with one. */
const digests = new WeakMap<Filter, Buffer>();

function digestOf(filter: Filter): Buffer {
  const known = digests.get(filter) ?? digest(JSON.stringify(filter));
  digests.set(filter, known);
  return known;
}

function digest(content: string | Buffer): Buffer {
  return hash('sha256', content, 'buffer').subarray(0, DIGEST_BYTES);
}
