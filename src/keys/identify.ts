/**
 * Identifies who sends a request: by API key, or by address.
 *
 * # Known keys
 *
 * A key that this instance knows is looked up again in the background, so that no request waits for that, and the rate limit
 * counts each one when it is received. A look-up is used for five seconds at most.
 *
 * # Unknown keys
 *
 * Only the database can tell whether a key is valid that this instance has not seen yet, and anyone can send such keys.
 * So the look-ups are limited: one statement at a time and at most a hundred a second, each for all keys that have
 * arrived since the previous one. MAX_CONNECTIONS bounds the requests that wait for a look-up, because the requests of
 * one connection are processed one after another.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Request } from 'express';
import { LRUCache } from 'lru-cache';
import type { Connection, Database } from '../database/connection.js';
import { and, inArray, isNull, sql } from '../database/drizzle.js';
import type { Reader } from '../database/reads.js';
import { apiKeys } from '../database/schema.js';
import { addressClient, type Client } from './client.js';
import { hashOf, KEY_FORM } from './keys.js';

/** The number of keys to cache. Unknown keys have a separate cache, so that they never evict valid ones. */
const MAX_VALID_KEYS = 10_000;
const MAX_UNKNOWN_KEYS = 1000;
/** How long a look-up is used without another one. */
const FRESH_MS = 2000;
/** How long a look-up of a valid key is used at all: a revoked key must stop working within 5 s. */
const VALID_MS = 5000;
/** The shortest time from the start of one look-up to the start of the next. */
const LOOKUP_INTERVAL_MS = 10;

export interface Identity {
  client: Client;
  /** What is wrong with the key, if there is no valid one. The client is then the request's address. */
  refusal?: string;
}

/**
 * Returns the client of a request.
 * @throws {DatabaseUnavailable} if a key can't be looked up until the deadline, by `performance.now()`
 */
export type Identify = (request: Request, deadline: number) => Identity | Promise<Identity>;

/** Identifies clients by their address alone. */
export const identifyByAddress: Identify = (request) => ({ client: addressClient(request) });

/** Identifies clients by their API keys, which are looked up through `reader`. */
export function identifyByApiKey(reader: Reader, findKeys: FindKeys): Identify {
  const lookUp = batchLookups((hashes, deadline) => {
    // Before the pages that wait, since one statement at a time can't delay those.
    return reader.read((database, _signal, connection) => findKeys(database, hashes, connection), deadline, {
      isFirst: true,
    });
  });
  const validKeys = new LRUCache<string, KnownKey>({ max: MAX_VALID_KEYS, ttl: VALID_MS });
  const unknownKeys = new LRUCache<string, true>({ max: MAX_UNKNOWN_KEYS, ttl: FRESH_MS });

  /** Returns the valid key with a hash. No request waits for a known key, which is looked up again in the background. */
  async function find(hash: string, deadline: number): Promise<KnownKey | undefined> {
    const known = validKeys.get(hash);
    const isFresh = known ? performance.now() < known.lookedUpAt + FRESH_MS : unknownKeys.has(hash);
    if (isFresh) return known;
    const found = lookUpAndCache(hash, deadline);
    if (!known) return found;
    // If the look-up fails, the next request repeats it.
    found.catch(() => {});
    return known;
  }

  // Not LRUCache's `fetch`: an unknown key would take the place of a valid one while it is looked up.
  async function lookUpAndCache(hash: string, deadline: number): Promise<KnownKey | undefined> {
    const key = await lookUp(hash, deadline);
    if (key) {
      validKeys.set(hash, key, { start: key.lookedUpAt });
    } else {
      validKeys.delete(hash);
      unknownKeys.set(hash, true);
    }
    return key;
  }

  return async (request, deadline) => {
    const refuse = (refusal: string): Identity => ({ client: addressClient(request), refusal });
    const header = request.headers.authorization?.trim();
    if (!header) return refuse('No API key was sent. Send it as "Authorization: Bearer <key>".');
    const token = header.replace(/^Bearer +/i, '');
    if (!KEY_FORM.test(token)) return refuse('This is not an API key. Send yours as "Authorization: Bearer <key>".');
    const key = await find(hashOf(token), deadline);
    if (!key) return refuse('The API key is unknown or revoked.');
    if (key.expiry <= performance.now()) {
      return refuse(`The API key expired at ${key.expiresAt}. Ask the operator for a new one.`);
    }
    return { client: key.client };
  };
}

/** A key that the database has and that is not revoked; it may have expired. */
interface KnownKey {
  client: Client;
  /** When it expires, by `performance.now()`; Infinity for never. */
  expiry: number;
  /** When it expires, in RFC 3339; null for never. */
  expiresAt: string | null;
  /** When its look-up began, by `performance.now()`. */
  lookedUpAt: number;
}

type KnownKeys = ReadonlyMap<string, KnownKey>;

/** Returns the known keys with the given hashes, by their hash. */
export type FindKeys = (database: Database, hashes: string[], connection: Connection) => Promise<KnownKeys>;

/**
 * Returns a function that looks up one key by its hash, in one statement with all keys that arrive before it may be sent. The
 * statement has the deadline of the first of them. The function resolves to undefined for a key that is unknown or revoked.
 * If a statement fails, the look-ups that wait for it to end also fail, because the next one would probably fail as well.
 */
function batchLookups(findKeys: (hashes: string[], deadline: number) => Promise<KnownKeys>) {
  /** The look-ups that are not sent yet. */
  let waiting: { hashes: Set<string>; keys: Promise<KnownKeys> } | undefined;
  /** Settles when the next statement may be sent; rejects if the latest one failed while others waited for it. */
  let previous: Promise<unknown> = Promise.resolve();

  function begin(deadline: number) {
    const hashes = new Set<string>();
    const turn = previous.finally(() => (waiting = undefined));
    const keys = turn.then(() => findKeys([...hashes], deadline));
    const end = Promise.all([keys, turn.then(() => sleep(LOOKUP_INTERVAL_MS))]);
    previous = end;
    end.catch(() => {
      if (previous === end) previous = sleep(LOOKUP_INTERVAL_MS);
    });
    return { hashes, keys };
  }

  return async (hash: string, deadline: number): Promise<KnownKey | undefined> => {
    waiting ??= begin(deadline);
    waiting.hashes.add(hash);
    return (await waiting.keys).get(hash);
  };
}

/** The current date in UTC, the time zone of all stored times. */
const TODAY = sql`(now() AT TIME ZONE 'UTC')::date`;

/** How long uses are not recorded after a failure: each would be an error in the log of a read-only server. */
const RECORDING_PAUSE_MS = 60_000;

/** Returns a function that finds keys, and also records that they were used. */
export function prepareFindKeys(): FindKeys {
  let isRecording = false;
  /** When recording last failed, by `performance.now()`. */
  let failedAt = Number.NEGATIVE_INFINITY;

  return async (database, hashes, connection) => {
    const lookedUpAt = performance.now();
    const rows = await selectKeys(database, hashes);
    const used = rows.filter(({ isFirstUseToday, millisecondsLeft }) => isFirstUseToday && (millisecondsLeft ?? 1) > 0);
    // Only one update at a time: if the whole table is locked, several updates would occupy all connections.
    if (used.length > 0 && !isRecording && lookedUpAt > failedAt + RECORDING_PAUSE_MS) {
      isRecording = true;
      const ids = used.map(({ id }) => id);
      void connection
        .run((later) => touchLastUsed(later, ids))
        .catch(() => (failedAt = performance.now()))
        .finally(() => (isRecording = false));
    }
    return new Map(
      rows.map(({ id, hash, businessProfileIds, expiresAt, millisecondsLeft }) => [
        hash,
        {
          client: { id: `key:${id}`, visibleProfiles: businessProfileIds },
          expiry: lookedUpAt + (millisecondsLeft ?? Number.POSITIVE_INFINITY),
          expiresAt,
          lookedUpAt,
        },
      ]),
    );
  };
}

/** Selects the keys with the given hashes that are not revoked. */
function selectKeys(database: Database, hashes: string[]) {
  return database
    .select({
      id: apiKeys.id,
      hash: apiKeys.hash,
      businessProfileIds: apiKeys.businessProfileIds,
      expiresAt: sql<string | null>`rfc3339(${apiKeys.expiresAt})`,
      isFirstUseToday: sql<boolean>`${apiKeys.lastUsedOn} IS DISTINCT FROM ${TODAY}`,
      // By the database's clock, which all instances share.
      millisecondsLeft: sql<number | null>`(extract(epoch FROM ${apiKeys.expiresAt} - now()) * 1000)::float8`,
    })
    .from(apiKeys)
    .where(and(sql`${apiKeys.hash} = ANY (${sql.param(hashes)}::text[])`, isNull(apiKeys.revokedAt)))
    .prepare('find keys')
    .execute();
}

/**
 * Records that keys were used today, once a day for each key, for `keys list`. It skips locked rows. Rejects on
 * a replica, or without the privilege.
 */
async function touchLastUsed(database: Database, ids: string[]): Promise<void> {
  const unlockedIds = database
    .select({ id: apiKeys.id })
    .from(apiKeys)
    .where(inArray(apiKeys.id, ids))
    .for('update', { skipLocked: true });
  await database.update(apiKeys).set({ lastUsedOn: TODAY }).where(inArray(apiKeys.id, unlockedIds));
}
