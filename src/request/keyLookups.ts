/**
 * Look-ups of API keys. Anyone can send keys that this instance has not seen yet, and only the database can tell which of
 * them are valid. So it is asked about all of them, but within bounds: one statement at a time and at most a hundred a
 * second, each about all the keys that have come since the one before. As many requests may wait for one as there are
 * connections (MAX_CONNECTIONS), since a connection's requests are worked on one after the other.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { and, inArray, isNull, sql } from 'drizzle-orm';
import type { Database } from '../database/connect.js';
import { apiKeys } from '../database/schema.js';
import type { Client } from './client.js';

/** How long the result of a look-up is used; with the time of the next one, which a request waits for, less than 5 s. */
export const KEY_TTL_MS = 4000;
/** From the start of a look-up to the start of the next, at least. */
const INTERVAL_MS = 10;

/** A key that the database knows. */
export interface KnownKey {
  client: Client;
  /** When it expires, by `performance.now()`; Infinity for never. */
  expiry: number;
  /** The same as RFC 3339. */
  expiresAt: string | null;
  /** When the database was asked, by `performance.now()`. */
  asked: number;
}

/** The keys of some hashes, by their hash; revoked and unknown ones are missing. */
type Found = ReadonlyMap<string, KnownKey>;

export type FindKeys = (hashes: string[]) => Promise<Found>;

/**
 * The look-up of a key by its hash, which resolves to undefined for a key that is unknown or revoked. It waits for the
 * statement before, and rejects as that does, since its own would fare no better.
 */
export function lookUpTogether(findKeys: FindKeys): (hash: string) => Promise<KnownKey | undefined> {
  let running: Promise<unknown> | undefined;
  let next: { hashes: Set<string>; found: Promise<Found> } | undefined;

  async function findNext(hashes: Set<string>): Promise<Found> {
    try {
      await running;
    } finally {
      next = undefined;
    }
    const found = findKeys([...hashes]);
    running = Promise.allSettled([found, sleep(INTERVAL_MS)]).then(() => {
      running = undefined;
      return found;
    });
    running.catch(() => {});
    return found;
  }

  return async (hash) => {
    if (!next) {
      const hashes = new Set<string>();
      next = { hashes, found: findNext(hashes) };
    }
    next.hashes.add(hash);
    return (await next.found).get(hash);
  };
}

/** In UTC, like all times here. */
const TODAY = sql`(now() AT TIME ZONE 'UTC')::date`;

/**
 * Records that keys were used today, which `keys list` shows: one write a day, for which no request waits, and which waits
 * for no locked row. If it fails, as on a replica or without the privilege, the next look-up tries again.
 */
async function noteUse(database: Database, ids: string[]): Promise<void> {
  const free = database
    .select({ id: apiKeys.id })
    .from(apiKeys)
    .where(inArray(apiKeys.id, ids))
    .for('update', { skipLocked: true });
  await database.update(apiKeys).set({ lastUsedOn: TODAY }).where(inArray(apiKeys.id, free));
}

/** Prepares the statement that finds keys by their hashes. */
export function prepareFindKeys(database: Database): FindKeys {
  const find = database
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
    .where(and(sql`${apiKeys.hash} = ANY (${sql.placeholder('hashes')}::text[])`, isNull(apiKeys.revokedAt)))
    .prepare('find keys');
  let isNoting = false;

  return async (hashes) => {
    const asked = performance.now();
    const rows = await find.execute({ hashes });
    const used = rows.filter(({ isFirstUseToday, millisecondsLeft }) => isFirstUseToday && (millisecondsLeft ?? 1) > 0);
    // One at a time: a lock on the whole table would hold all connections.
    if (used.length > 0 && !isNoting) {
      isNoting = true;
      const ids = used.map(({ id }) => id);
      void noteUse(database, ids)
        .catch(() => {})
        .finally(() => (isNoting = false));
    }
    return new Map(
      rows.map(({ id, hash, businessProfileIds, expiresAt, millisecondsLeft }) => [
        hash,
        {
          client: { id: `key:${id}`, visibleProfiles: businessProfileIds },
          expiry: asked + (millisecondsLeft ?? Number.POSITIVE_INFINITY),
          expiresAt,
          asked,
        },
      ]),
    );
  };
}
