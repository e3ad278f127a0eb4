/**
 * API keys: created, listed and revoked. A key is 256 random bits, so its SHA-256 can be kept and looked up as it is: a slow
 * or salted hash would protect nothing, and the time of a lookup reveals nothing.
 */
import { createHash, randomBytes } from 'node:crypto';
import { and, asc, eq, inArray, isNull, type SQL, sql } from 'drizzle-orm';
import { contract } from '../contract.js';
import type { Database } from '../database/connect.js';
import { CHECK_VIOLATION, causeOf, codeOf } from '../database/errors.js';
import { apiKeys, businessProfiles } from '../database/schema.js';
import { UserError } from '../userError.js';

/** Lets secret scanners find a leaked key, and refuses anything else without asking the database. */
export const KEY_FORM = /^bpn_[A-Za-z0-9_-]{43}$/;
const KEY_BYTES = 32;

/** What is shown of a key; its times are RFC 3339 in UTC. */
const shown = {
  id: apiKeys.id,
  name: apiKeys.name,
  state: sql<'active' | 'expired' | 'revoked'>`CASE
    WHEN ${apiKeys.revokedAt} IS NOT NULL THEN 'revoked' WHEN ${apiKeys.expiresAt} <= now() THEN 'expired' ELSE 'active'
  END`,
  businessProfileIds: apiKeys.businessProfileIds,
  createdAt: sql<string>`rfc3339(${apiKeys.createdAt})`,
  expiresAt: sql<string | null>`rfc3339(${apiKeys.expiresAt})`,
  revokedAt: sql<string | null>`rfc3339(${apiKeys.revokedAt})`,
  lastUsedOn: apiKeys.lastUsedOn,
};
export type ApiKey = Awaited<ReturnType<typeof listApiKeys>>[number];

/**
 * Creates a key. Returns, beside its record, the key itself, which can't be shown again.
 * @throws {UserError} when its name is invalid, or its expiry is past
 */
export async function createApiKey(
  database: Pick<Database, 'insert'>,
  name: string,
  { businessProfileIds = null, expiresAt }: { businessProfileIds?: string[] | null; expiresAt?: Date | null } = {},
) {
  const key = `bpn_${randomBytes(KEY_BYTES).toString('base64url')}`;
  const [created] = await database
    .insert(apiKeys)
    .values({ hash: hashOf(key), name, businessProfileIds, expiresAt: expiresAt?.toISOString() ?? null })
    .returning(shown)
    .catch((error) => {
      throw reasonOf(error) ?? error;
    });
  if (!created) throw new Error('the database returned no key');
  return { key, created };
}

/** Explains what the schema's own checks refuse. */
function reasonOf(error: unknown): UserError | undefined {
  const cause = causeOf(error) as Error & { constraint_name?: string };
  if (codeOf(cause) !== CHECK_VIOLATION) return undefined;
  if (cause.constraint_name === 'key_name_is_name') {
    const { minLength: least, maxLength: most } = contract.components.schemas.Name ?? {};
    return new UserError(`the name must have ${least} to ${most} characters, none of them a control character`);
  }
  if (cause.constraint_name === 'key_expires_later') return new UserError('the key would have expired already');
  return undefined;
}

/** Those of `ids` that belong to no business profile. */
export async function unknownProfiles(database: Database, ids: readonly string[]): Promise<string[]> {
  if (ids.length === 0) return [];
  const known = await database
    .select({ id: businessProfiles.id })
    .from(businessProfiles)
    .where(inArray(businessProfiles.id, [...ids]));
  return ids.filter((id) => !known.some((profile) => profile.id === id));
}

/** All keys, expired and revoked ones too, oldest first. */
export async function listApiKeys(database: Database) {
  return database.select(shown).from(apiKeys).orderBy(asc(apiKeys.createdAt), asc(apiKeys.id));
}

/** Revokes a key; undefined if no key has this id, or it is revoked already. */
export async function revokeApiKey(database: Database, id: string) {
  const now: SQL<string> = sql`now()`;
  const [revoked] = await database
    .update(apiKeys)
    .set({ revokedAt: now })
    .where(and(eq(apiKeys.id, id), isNull(apiKeys.revokedAt)))
    .returning(shown);
  return revoked;
}

/** What is stored of a key. */
export function hashOf(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}
