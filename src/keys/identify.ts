/**
 * Identifies who sends a request: by API key, or by address.
 *
 * # Known keys
 *
 * A key that this instance knows is looked up again in the background. So its requests don't wait, and the rate limit counts them
 * when they are received. A look-up is used for five seconds at most.
 *
 * # Unknown keys
 *
 * Only the database can tell whether a key is valid that this instance has not seen yet, and anyone can send such keys.
 * So the look-ups are limited: one statement at a time and at most a hundred a second, each for all keys that have
 * arrived since the previous one. MAX_CONNECTIONS bounds the requests that wait for a look-up: a connection has one.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Request } from 'express';
import { LRUCache } from 'lru-cache';
import { inBatches } from '../database/batches.js';
import { type Database, withConnection } from '../database/connection.js';
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
/** How long a look-up waits for others that may join it, in milliseconds. */
const LOOKUP_INTERVAL_MS = 10;

export interface Identity {
  client: Client;
  /** What is wrong with the key, if there is no valid one. The client is then the request's address. */
  refusal?: string;
}

/** @throws {DatabaseUnavailable} if a key can't be looked up until the deadline, by `performance.now()` */
export type Identify = (request: Request, deadline: number) => Identity | Promise<Identity>;

/** Identifies clients by their address alone. */
export const identifyByAddress: Identify = (request) => ({ client: addressClient(request) });

/** Identifies clients by their API keys, which are looked up through `reader`. */
export function identifyByApiKey(reader: Reader, findKeys: FindKeys): Identify {
  /** Looks up a key, in one statement with all keys that arrive before it is sent. */
  const lookUp = inBatches<{ hash: string; deadline: number }, KnownKey | undefined>(
    () => sleep(LOOKUP_INTERVAL_MS),
    async (sought) => {
      const hashes = [...new Set(sought.map(({ hash }) => hash))];
      // That of the first key, since it is the earliest.
      const deadline = sought[0]?.deadline ?? 0;
      // First, ahead of the pages that wait: one statement at a time hardly delays them.
      const keys = await reader.read((database) => findKeys(database, hashes), deadline, { isFirst: true });
      return ({ hash }) => keys.get(hash);
    },
  );
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
    const key = await lookUp({ hash, deadline });
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

/** Returns the known keys with the given hashes, by their hash. */
export type FindKeys = (database: Database, hashes: string[]) => Promise<ReadonlyMap<string, KnownKey>>;

/** The current date in UTC, the time zone of all stored times. */
const TODAY = sql`(now() AT TIME ZONE 'UTC')::date`;

/** Returns a function that finds keys, and calls `recordUse` with the ids of valid ones that were not used yet today. */
export function prepareFindKeys(recordUse: (ids: string[]) => void = () => {}): FindKeys {
  return async (database, hashes) => {
    const lookedUpAt = performance.now();
    const rows = await selectKeys(database, hashes);
    const used = rows.filter(({ isFirstUseToday, millisecondsLeft }) => isFirstUseToday && millisecondsLeft > 0);
    if (used.length > 0) recordUse(used.map(({ id }) => id));
    return new Map(
      rows.map(({ id, hash, businessProfileIds, expiresAt, millisecondsLeft }) => [
        hash,
        {
          client: { id: `key:${id}`, visibleProfiles: businessProfileIds },
          expiry: lookedUpAt + millisecondsLeft,
          expiresAt,
          lookedUpAt,
        },
      ]),
    );
  };
}

function selectKeys(database: Database, hashes: string[]) {
  return database
    .select({
      id: apiKeys.id,
      hash: apiKeys.hash,
      businessProfileIds: apiKeys.businessProfileIds,
      expiresAt: sql<string | null>`rfc3339(${apiKeys.expiresAt})`,
      isFirstUseToday: sql<boolean>`${apiKeys.lastUsedOn} IS DISTINCT FROM ${TODAY}`,
      // By the database's clock, which all instances share; Infinity if it never expires.
      millisecondsLeft: sql<number>`coalesce(extract(epoch FROM ${apiKeys.expiresAt} - now()) * 1000, 'Infinity')::float8`,
    })
    .from(apiKeys)
    .where(and(sql`${apiKeys.hash} = ANY (${sql.param(hashes)}::text[])`, isNull(apiKeys.revokedAt)))
    .prepare('find keys')
    .execute();
}

/** How long uses are not recorded after a failure: each would be an error in the log of a read-only server. */
const RECORDING_PAUSE_MS = 60_000;

/**
 * Returns a function that records in the database at `url` that keys were used today, for `keys list`. It ignores calls while it
 * records, and for a while after a failure, as on a replica or without the privilege: a later look-up of the keys calls it again.
 */
export function prepareRecordUse(url: string): (ids: string[]) => void {
  let isRecording = false;
  /** Until when calls are ignored, by `performance.now()`. */
  let pausedUntil = 0;
  return async (ids) => {
    if (isRecording || performance.now() < pausedUntil) return;
    isRecording = true;
    try {
      // On a connection that is then closed: if the table is locked, no connection of pages waits.
      await withConnection(url, (connection) => connection.run(touchLastUsed(ids)), { statementTimeout: 1000 });
    } catch {
      pausedUntil = performance.now() + RECORDING_PAUSE_MS;
    }
    isRecording = false;
  };
}

const touchLastUsed = (ids: string[]) => (database: Database) => {
  const unlockedIds = database
    .select({ id: apiKeys.id })
    .from(apiKeys)
    .where(inArray(apiKeys.id, ids))
    .for('update', { skipLocked: true });
  return database.update(apiKeys).set({ lastUsedOn: TODAY }).where(inArray(apiKeys.id, unlockedIds));
};
