/**
 * API keys: made, listed, revoked, and recognized in requests.
 *
 * A key is 256 random bits, so its SHA-256 can be kept and looked up as it is: there is nothing to guess that a slow or
 * salted hash would protect, and how long a lookup takes tells nothing about any key.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { and, asc, eq, isNull, sql } from 'drizzle-orm';
import type { Request, RequestHandler } from 'express';
import { addressClient, type Client } from './client.js';
import type { Database } from './database.js';
import { problem } from './problem.js';
import type { Reader } from './reader.js';
import { apiKeys } from './schema.js';

/** Lets a leaked key be found by scanners, and refuses what is no key without asking the database. */
const KEY = /^bpn_[A-Za-z0-9_-]{43}$/;
const KEY_BYTES = 32;

/** A key is believed for so many milliseconds after it was looked up; together with the lookup less than 5 s. */
const BELIEF = 4000;
/** Milliseconds for a lookup. */
const LOOKUP_LIMIT = 500;
/** Keys remembered at once; all are forgotten when there are more, which costs a lookup each. */
const MOST_REMEMBERED = 10_000;

export interface ApiKey {
  id: string;
  name: string;
  /** The business profiles whose numbers the key sees; null for all. */
  businessProfileIds: string[] | null;
  createdAt: string;
  revokedAt: string | null;
}

const shown = {
  id: apiKeys.id,
  name: apiKeys.name,
  businessProfileIds: apiKeys.businessProfileIds,
  createdAt: apiKeys.createdAt,
  revokedAt: apiKeys.revokedAt,
};

/** Makes a key. What is returned beside its record is the key itself, which can't be had again. */
export async function createApiKey(
  database: Database,
  name: string,
  businessProfileIds: string[] | null,
): Promise<{ key: string; id: string }> {
  const key = `bpn_${randomBytes(KEY_BYTES).toString('base64url')}`;
  const [created] = await database
    .insert(apiKeys)
    .values({ hash: hashOf(key), name, businessProfileIds })
    .returning({ id: apiKeys.id });
  if (!created) throw new Error('the database made no key');
  return { key, id: created.id };
}

/** All keys, revoked ones too, oldest first. */
export function listApiKeys(database: Database): Promise<ApiKey[]> {
  return database.select(shown).from(apiKeys).orderBy(asc(apiKeys.createdAt), asc(apiKeys.id));
}

/** Revokes a key; false where there is none with this id, or it is revoked already. */
export async function revokeApiKey(database: Database, id: string): Promise<boolean> {
  const revoked = await database
    .update(apiKeys)
    .set({ revokedAt: sql`now()` })
    .where(and(eq(apiKeys.id, id), isNull(apiKeys.revokedAt)))
    .returning({ id: apiKeys.id });
  return revoked.length > 0;
}

/** What `identify` leaves for the handlers behind the rate limit. */
interface Identified {
  client: Client;
  /** What was wrong with the key, where the client is known by its address only. */
  refusal?: string;
}

/** Handlers in the order of a request: who it is from, before the rate limit counts it; and no further without a key. */
export interface Authentication {
  identify: RequestHandler;
  authorize: RequestHandler;
}

/** Knows clients by their API key. A request without a good one is counted for its address, then refused with 401. */
export function authenticateByApiKey(database: Database, reader: Reader): Authentication {
  const lookUp = prepareLookup(database, reader);
  return {
    async identify(request, response, next) {
      Object.assign(response.locals, await identified(request, lookUp));
      next();
    },
    authorize(_request, response, next) {
      const { refusal } = response.locals as Identified;
      if (refusal === undefined) return next();
      throw problem('unauthorized', refusal, {
        headers: { 'WWW-Authenticate': 'Bearer realm="branded-phone-numbers"' },
      });
    },
  };
}

/** Knows clients by their address alone. */
export const authenticateByAddress: Authentication = {
  identify(request, response, next) {
    response.locals.client = addressClient(request);
    next();
  },
  authorize: (_request, _response, next) => next(),
};

async function identified(request: Request, lookUp: (key: string) => Promise<Client | null>): Promise<Identified> {
  const sent = request.get('Authorization')?.trim();
  const unknown = { client: addressClient(request) };
  if (!sent) return { ...unknown, refusal: 'No API key was sent. Send it as "Authorization: Bearer <key>".' };
  const key = sent.replace(/^Bearer +/i, '');
  if (!KEY.test(key))
    return { ...unknown, refusal: 'This is not an API key. Send yours as "Authorization: Bearer <key>".' };
  const client = await lookUp(key);
  return client ? { client } : { ...unknown, refusal: 'The API key is unknown or revoked.' };
}

function prepareLookup(database: Database, reader: Reader): (key: string) => Promise<Client | null> {
  const remembered = new Map<string, { client: Promise<Client | null>; until: number }>();
  const find = database
    .select({ id: apiKeys.id, hash: apiKeys.hash, businessProfileIds: apiKeys.businessProfileIds })
    .from(apiKeys)
    .where(and(eq(apiKeys.hash, sql.placeholder('hash')), isNull(apiKeys.revokedAt)))
    .prepare('find key');

  async function look(hash: string): Promise<Client | null> {
    const [found] = await reader.read(() => find.execute({ hash }), LOOKUP_LIMIT);
    if (!found || !timingSafeEqual(Buffer.from(found.hash), Buffer.from(hash))) return null;
    return { id: `key:${found.id}`, visibleProfiles: found.businessProfileIds };
  }

  return (key) => {
    const hash = hashOf(key);
    const now = performance.now();
    const known = remembered.get(hash);
    if (known && known.until > now) return known.client;
    if (remembered.size >= MOST_REMEMBERED) remembered.clear();
    const client = look(hash);
    remembered.set(hash, { client, until: now + BELIEF });
    // A failure is no answer.
    client.catch(() => remembered.delete(hash));
    return client;
  };
}

function hashOf(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}
