/**
 * Creates, lists and revokes API keys. A key is 256 random bits, so it is stored and looked up by its SHA-256: a slow
 * or salted hash would add no protection, and the time of a look-up reveals nothing.
 */
import { createHash, randomBytes } from 'node:crypto';
import { contract } from '../contract.js';
import type { Database } from '../database/connection.js';
import { and, asc, inArray, isNull, sql } from '../database/drizzle.js';
import { causeOf } from '../database/errors.js';
import { apiKeys, businessProfiles } from '../database/schema.js';
import { UserError } from '../userError.js';

/** The form of a key, which secret scanners can search for. Anything else is rejected without a look-up. */
export const KEY_FORM = /^bpn_[A-Za-z0-9_-]{43}$/;

const EXPIRY_NOTICE_DAYS = 14;
const expiresSoon = sql<boolean>`(${apiKeys.revokedAt} IS NULL AND ${apiKeys.expiresAt} > now()
  AND ${apiKeys.expiresAt} <= now() + make_interval(days => ${EXPIRY_NOTICE_DAYS}))`;

/** The columns of a key that are shown; times are RFC 3339 in UTC. */
const shownColumns = {
  id: apiKeys.id,
  name: apiKeys.name,
  state: sql<'active' | 'expired' | 'revoked'>`CASE
    WHEN ${apiKeys.revokedAt} IS NOT NULL THEN 'revoked' WHEN ${apiKeys.expiresAt} <= now() THEN 'expired' ELSE 'active'
  END`,
  businessProfileIds: apiKeys.businessProfileIds,
  createdAt: sql<string>`rfc3339(${apiKeys.createdAt})`,
  createdBy: apiKeys.createdBy,
  expiresAt: sql<string | null>`rfc3339(${apiKeys.expiresAt})`,
  revokedAt: sql<string | null>`rfc3339(${apiKeys.revokedAt})`,
  revokedBy: apiKeys.revokedBy,
  lastUsedOn: apiKeys.lastUsedOn,
};
export type ApiKey = Awaited<ReturnType<typeof listApiKeys>>[number];

/**
 * Creates a key. Returns its record and the key itself, which is not stored.
 * @throws {UserError} if the name is invalid, or the expiry is in the past
 */
export async function createApiKey(
  database: Database,
  name: string,
  { businessProfileIds = null, expiresAt }: { businessProfileIds?: string[] | null; expiresAt?: Date | null } = {},
) {
  const key = `bpn_${randomBytes(32).toString('base64url')}`;
  const [created] = await database
    .insert(apiKeys)
    .values({ hash: hashOf(key), name, businessProfileIds, expiresAt: expiresAt?.toISOString() ?? null })
    .returning(shownColumns)
    .catch((error) => {
      throw asUserError(error);
    });
  if (!created) throw new Error('the database returned no key');
  return { key, created };
}

/** Converts the error for a value that violates a CHECK to a user error; returns other errors unchanged. */
function asUserError(error: unknown): unknown {
  const { constraint_name: constraint } = causeOf(error) as { constraint_name?: string };
  if (constraint === 'key_expires_later') return new UserError('the expiry must be in the future');
  if (constraint !== 'key_name_is_name') return error;
  const { minLength, maxLength } = contract.components.schemas.Name ?? {};
  return new UserError(`the name must have ${minLength} to ${maxLength} characters, and no control characters`);
}

/** Returns the `ids` that are not ids of business profiles. */
export async function unknownProfiles(database: Database, ids: readonly string[]): Promise<string[]> {
  const known = await database
    .select({ id: businessProfiles.id })
    .from(businessProfiles)
    .where(inArray(businessProfiles.id, [...ids]));
  return ids.filter((id) => !known.some((profile) => profile.id === id));
}

/** Returns all keys, including expired and revoked ones, oldest first, and whether each expires within 14 days. */
export async function listApiKeys(database: Database) {
  const columns = { ...shownColumns, expiresSoon };
  return database.select(columns).from(apiKeys).orderBy(asc(apiKeys.createdAt), asc(apiKeys.id));
}

/** Returns the number of active keys that expire within 14 days. */
export const countExpiringKeys = (database: Database) => database.$count(apiKeys, expiresSoon);

/** Revokes keys, all or, if it fails, none. Returns the ids of those that were active. */
export async function revokeApiKeys(database: Database, ids: string[]): Promise<string[]> {
  const revoked = await database
    .update(apiKeys)
    .set({ revokedAt: sql`now()`, revokedBy: sql`session_user` })
    .where(and(inArray(apiKeys.id, ids), isNull(apiKeys.revokedAt)))
    .returning({ id: apiKeys.id });
  return revoked.map(({ id }) => id);
}

/** Returns the hash under which a key is stored: its SHA-256, in hexadecimal. */
export function hashOf(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}
