/**
 * The cursor: the phone number at which a page ended, and the filter of that page. It contains only what the page
 * itself shows, so it needs no secret. Its checksum guards against damage, not against forgery: every request is
 * authenticated and filtered, so a forged cursor grants nothing, and its phone number is checked like the parameter
 * `phoneNumber`. It names a phone number, not a row, so it stays valid if the row is deleted.
 */
import { hash } from 'node:crypto';
import { parameters } from '../../contract.js';
import type { Filter } from '../../page/filter.js';

/** Raise it when the order of the pages changes, so that older cursors are rejected instead of misread. */
const VERSION = 1;
/** The bytes kept of each of the two SHA-256 digests: the filter's, and the checksum of everything before it. */
const DIGEST_BYTES = 8;
/** Bytes before the phone number: the version and the filter's digest. */
const HEAD_BYTES = 1 + DIGEST_BYTES;
const E164 = new RegExp(parameters.get('phoneNumber')?.schema.pattern as string, 'u');

/** Returns the cursor of the page after `phoneNumber`; unreserved characters only (RFC 3986 section 2.3). */
export function encodeCursor(phoneNumber: string, filter: Filter): string {
  const content = Buffer.concat([Buffer.of(VERSION), digestOf(filter), Buffer.from(phoneNumber.slice(1))]);
  return Buffer.concat([content, digest(content)]).toString('base64url');
}

export type Cursor = NonNullable<ReturnType<typeof decodeCursor>>;

/** Returns the phone number that the page follows, and whether the cursor is for a filter; undefined if damaged. */
export function decodeCursor(text: string) {
  const bytes = Buffer.from(text, 'base64url');
  const content = bytes.subarray(0, -DIGEST_BYTES);
  const after = `+${content.toString('latin1', HEAD_BYTES)}`;
  // The first comparison rejects changes to the bits of the last character that base64url ignores.
  const isIntact =
    bytes.toString('base64url') === text &&
    content[0] === VERSION &&
    digest(content).equals(bytes.subarray(-DIGEST_BYTES)) &&
    E164.test(after);
  if (!isIntact) return undefined;
  return { after, isFor: (filter: Filter) => digestOf(filter).equals(content.subarray(1, HEAD_BYTES)) };
}

/** Digests by filter: a walk uses one filter for all its pages. */
const digests = new WeakMap<Filter, Buffer>();

function digestOf(filter: Filter): Buffer {
  const known = digests.get(filter) ?? digest(textOf(filter));
  digests.set(filter, known);
  return known;
}

/**
 * Returns the text of a filter; cursors contain its digest. Its names and their order are those of the first release,
 * since any change to them would invalidate every cursor that clients hold.
 */
function textOf(filter: Filter): string {
  return JSON.stringify({
    phoneNumber: filter.phoneNumber,
    businessProfileId: filter.businessProfileId?.[0] ?? null,
    reportingGroups: filter.reportingGroup,
    internalNames: filter.internalName,
    carriers: filter.carrier,
    features: filter.feature,
    detailedStatuses: filter.detailedStatus,
    statuses: filter.status,
    dottedStatuses: filter.dottedStatus,
  });
}

function digest(content: string | Buffer): Buffer {
  return hash('sha256', content, 'buffer').subarray(0, DIGEST_BYTES);
}
