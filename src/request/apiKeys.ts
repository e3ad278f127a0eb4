/** Recognizes API keys in requests. */
import type { Request } from 'express';
import { LRUCache } from 'lru-cache';
import { hashOf, KEY_FORM } from '../keys/keys.js';
import { addressClient, type Client } from './client.js';
import { type FindKeys, KEY_TTL_MS, type KnownKey, lookUpTogether } from './keyLookups.js';

/** How many keys are remembered; unknown ones separately, so that they never push out valid ones. */
const MAX_VALID_KEYS = 10_000;
const MAX_UNKNOWN_KEYS = 1000;

/** Who sent a request. */
interface Identified {
  client: Client;
  /** What was wrong with the key, if the client is known by its address only. */
  refusal?: string;
}

/** Identifies who sent a request. */
export type Identify = (request: Request) => Identified | Promise<Identified>;

/** Identifies clients by their address alone. */
export const identifyByAddress: Identify = (request) => ({ client: addressClient(request) });

/** Knows clients by their API key. A request without a valid one is counted for its address, then refused. */
export function identifyByApiKey(findKeys: FindKeys): Identify {
  const lookUp = lookUpTogether(findKeys);
  const valid = new LRUCache<string, KnownKey>({ max: MAX_VALID_KEYS });
  /** Until when each key counts as unknown. */
  const unknown = new LRUCache<string, number>({ max: MAX_UNKNOWN_KEYS });

  async function find(hash: string): Promise<KnownKey | undefined> {
    const now = performance.now();
    const known = valid.get(hash);
    if (known && known.freshUntil > now) return known;
    if ((unknown.get(hash) ?? 0) > now) return undefined;
    const key = await lookUp(hash);
    if (key) {
      valid.set(hash, key);
    } else {
      valid.delete(hash);
      unknown.set(hash, performance.now() + KEY_TTL_MS);
    }
    return key;
  }

  return async (request) => {
    const refuse = (refusal: string): Identified => ({ client: addressClient(request), refusal });
    const sent = request.headers.authorization?.trim();
    if (!sent) return refuse('No API key was sent. Send it as "Authorization: Bearer <key>".');
    const text = sent.replace(/^Bearer +/i, '');
    if (!KEY_FORM.test(text)) return refuse('This is not an API key. Send yours as "Authorization: Bearer <key>".');
    const key = await find(hashOf(text));
    if (!key) return refuse('The API key is unknown or revoked.');
    if (key.expiry <= performance.now()) {
      return refuse(`The API key expired at ${key.expiresAt}. Ask the operator for a new one.`);
    }
    return { client: key.client };
  };
}
