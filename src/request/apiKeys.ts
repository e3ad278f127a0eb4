/** API keys, recognized in requests. */
import { timingSafeEqual } from 'node:crypto';
import { and, eq, isNull, sql } from 'drizzle-orm';
import type { Request } from 'express';
import { LRUCache } from 'lru-cache';
import type { Database } from '../database/connect.js';
import type { Reader } from '../database/reads.js';
import { apiKeys } from '../database/schema.js';
import { hashOf, KEY_FORM } from '../keys/keys.js';
import type { RateLimit, Turn } from '../rateLimit/rateLimit.js';
import { addressClient, type Client } from './client.js';

/** How long the result of a lookup is used; together with the lookup's own time less than 5 s. */
const KEY_CACHE_TTL_MS = 4000;
const LOOKUP_TIMEOUT_MS = 500;
/** How many keys are cached; unknown ones separately, so that they never evict good ones. */
const MAX_GOOD_KEYS = 10_000;
const MAX_UNKNOWN_KEYS = 1000;

/** Who sent a request. */
export interface Identified {
  client: Client;
  /** What was wrong with the key, where the client is known by its address only. */
  refusal?: string;
  /** The client's turn with the rate limit, where the request has been counted already. */
  turn?: Turn | undefined;
}

/** Identifies who sent a request. @throws the problem of a 429 for an address that has sent too many unknown keys */
export type Identify = (request: Request) => Identified | Promise<Identified>;

/** A key that the database knows. */
interface KnownKey {
  client: Client;
  /** When it expires, by `performance.now()`; Infinity for never. */
  expiry: number;
  /** The same as RFC 3339. */
  expiresAt: string | null;
  /** Until when this is used without another lookup, by `performance.now()`. */
  freshUntil: number;
}

/** Knows clients by their address alone. */
export const identifyByAddress: Identify = (request) => ({ client: addressClient(request) });

/** Knows clients by their API key. A request without a good one is counted for its address, then refused. */
export function identifyByApiKey(database: Database, reader: Reader, rateLimit: RateLimit): Identify {
  const findKey = prepareFindKey(database, reader);
  const good = new LRUCache<string, KnownKey>({ max: MAX_GOOD_KEYS });
  /** Until when each key counts as unknown. */
  const unknown = new LRUCache<string, number>({ max: MAX_UNKNOWN_KEYS });
  /** Lookups that are running, by the key's hash; and how many of them are for keys new to us, by the address. */
  const running = new Map<string, Promise<KnownKey | undefined>>();
  const newKeys = new Map<string, number>();

  async function lookUp(hash: string): Promise<KnownKey | undefined> {
    try {
      const key = await findKey(hash);
      if (key) {
        good.set(hash, key);
      } else {
        good.delete(hash);
        unknown.set(hash, performance.now() + KEY_CACHE_TTL_MS);
      }
      return key;
    } finally {
      running.delete(hash);
    }
  }

  function lookUpOnce(hash: string): Promise<KnownKey | undefined> {
    const lookup = running.get(hash) ?? lookUp(hash);
    running.set(hash, lookup);
    return lookup;
  }

  /** Counts keys that are still being looked up against their address's limit, as well as those it has sent. */
  async function lookUpNew(hash: string, address: string): Promise<{ key: KnownKey | undefined; turn?: Turn }> {
    const pending = newKeys.get(address) ?? 0;
    newKeys.set(address, pending + 1);
    try {
      if (rateLimit.isLikelyToPass(address, pending)) return { key: await lookUpOnce(hash) };
      const turn = rateLimit.count(address);
      await turn.verdict;
      return { key: await lookUpOnce(hash), turn };
    } finally {
      const left = (newKeys.get(address) ?? 1) - 1;
      if (left > 0) newKeys.set(address, left);
      else newKeys.delete(address);
    }
  }

  return async (request) => {
    const address = addressClient(request);
    const refuse = (refusal: string, turn?: Turn): Identified => ({ client: address, refusal, turn });
    const sent = request.headers.authorization?.trim();
    if (!sent) return refuse('No API key was sent. Send it as "Authorization: Bearer <key>".');
    const text = sent.replace(/^Bearer +/i, '');
    if (!KEY_FORM.test(text)) return refuse('This is not an API key. Send yours as "Authorization: Bearer <key>".');
    const hash = hashOf(text);
    const now = performance.now();
    let key = good.get(hash);
    let turn: Turn | undefined;
    if (!key && (unknown.get(hash) ?? 0) <= now) {
      ({ key, turn } = await lookUpNew(hash, address.id));
    } else if (key && key.freshUntil <= now) {
      // It was good before, so it is looked up whatever else its address sends.
      key = await lookUpOnce(hash);
    }
    if (!key) return refuse('The API key is unknown or revoked.', turn);
    if (key.expiry <= performance.now()) {
      return refuse(`The API key expired at ${key.expiresAt}. Ask the operator for a new one.`, turn);
    }
    return { client: key.client };
  };
}

/** Prepares the lookup of a key by its hash; it finds none that is revoked. */
function prepareFindKey(database: Database, reader: Reader): (hash: string) => Promise<KnownKey | undefined> {
  const find = database
    .select({
      id: apiKeys.id,
      hash: apiKeys.hash,
      businessProfileIds: apiKeys.businessProfileIds,
      expiresAt: sql<string | null>`rfc3339(${apiKeys.expiresAt})`,
      // By the database's clock, which all instances share.
      millisecondsLeft: sql<number | null>`(extract(epoch FROM ${apiKeys.expiresAt} - now()) * 1000)::float8`,
    })
    .from(apiKeys)
    .where(and(eq(apiKeys.hash, sql.placeholder('hash')), isNull(apiKeys.revokedAt)))
    .prepare('find key');

  return async (hash) => {
    const asked = performance.now();
    const [found] = await reader.read(() => find.execute({ hash }), LOOKUP_TIMEOUT_MS);
    if (!found || !timingSafeEqual(Buffer.from(found.hash), Buffer.from(hash))) return undefined;
    const { id, businessProfileIds, expiresAt, millisecondsLeft } = found;
    return {
      client: { id: `key:${id}`, visibleProfiles: businessProfileIds },
      expiry: asked + (millisecondsLeft ?? Number.POSITIVE_INFINITY),
      expiresAt,
      freshUntil: asked + KEY_CACHE_TTL_MS,
    };
  };
}
