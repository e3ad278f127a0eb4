/**
 * The cursor: where a page ended, and for which filter. It holds nothing that the page itself doesn't show, so it needs
 * no secret; its checksum is against damage, not against forgery, since it grants nothing: every request is filtered
 * and authenticated anew. It names a phone number, not a row, so it outlives the row.
 */
import { createHash } from 'node:crypto';
import type { Fault } from '../generated/types/models/index.js';
import type { Filter } from './filter.js';
import { type ProblemError, problem } from './problem.js';

/** Raise it when the order of the pages changes, so that an older cursor is refused and not misread. */
const VERSION = 1;
/** Bytes of SHA-256 kept of the filter, and of all that stands before the checksum. */
const DIGEST_LENGTH = 8;

/** The cursor of the page after `phoneNumber`; unreserved characters only (RFC 3986 section 2.3). */
export function encodeCursor(phoneNumber: string, filter: Filter): string {
  const content = Buffer.concat([Buffer.of(VERSION), digestOf(filter), Buffer.from(phoneNumber.slice(1))]);
  return Buffer.concat([content, digest(content)]).toString('base64url');
}

/** What is wrong with a cursor, whatever its filter; undefined where nothing is. */
export function faultOfCursor(cursor: string): Fault | undefined {
  const bytes = Buffer.from(cursor, 'base64url');
  const content = bytes.subarray(0, -DIGEST_LENGTH);
  // The last character of base64url can carry bits that no byte holds: without the first test they could be altered.
  const isIntact =
    bytes.toString('base64url') === cursor &&
    content[0] === VERSION &&
    content.length > 1 + DIGEST_LENGTH &&
    digest(content).equals(bytes.subarray(-DIGEST_LENGTH));
  return isIntact ? undefined : fault('is damaged; send it exactly as it was received, or start without it');
}

/**
 * The phone number after which the page begins that an undamaged `cursor` leads to.
 * @throws the problem `invalid-cursor`, when it was made for another filter
 */
export function decodeCursor(cursor: string, filter: Filter): string {
  const content = Buffer.from(cursor, 'base64url').subarray(0, -DIGEST_LENGTH);
  if (!digestOf(filter).equals(content.subarray(1, 1 + DIGEST_LENGTH))) {
    throw invalidCursor(fault('belongs to other filters; send those it was made with, or start without it'));
  }
  return `+${content.toString('latin1', 1 + DIGEST_LENGTH)}`;
}

/** The problem of a request whose only fault is its cursor. */
export function invalidCursor(cursorFault: Fault): ProblemError {
  return problem('invalid-cursor', `nextCursor ${cursorFault.detail}.`, { errors: [cursorFault] });
}

function fault(detail: string): Fault {
  return { parameter: 'nextCursor', detail };
}

function digestOf(filter: Filter): Buffer {
  return digest(JSON.stringify(filter));
}

function digest(content: string | Buffer): Buffer {
  return createHash('sha256').update(content).digest().subarray(0, DIGEST_LENGTH);
}
