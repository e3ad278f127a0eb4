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
  const valid = new LRUCache<string, KnownKey>({ max: MAX_VALID_KEYS, ttl: KEY_TTL_MS });
  const unknown = new LRUCache<string, true>({ max: MAX_UNKNOWN_KEYS, ttl: KEY_TTL_MS });

  async function find(hash: string): Promise<KnownKey | undefined> {
    const known = valid.get(hash);
    if (known || unknown.has(hash)) return known;
    const key = await lookUp(hash);
    if (key) valid.set(hash, key, { start: key.asked });
    else unknown.set(hash, true);
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
