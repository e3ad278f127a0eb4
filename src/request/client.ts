/** Who sends a request: whom the rate limit counts, and what they may see. */
import type { Request } from 'express';
import { compile } from 'proxy-addr';
import type { Config } from '../config.js';
import { networkOf } from '../http/network.js';

export interface Client {
  /** What the rate limit counts by. */
  id: string;
  /** The business profiles whose numbers the client may see; null for all. */
  visibleProfiles: readonly string[] | null;
}

/** The client that is known by its address alone. Whatever a proxy sends instead of an address counts as one client. */
export function addressClient({ ip = '' }: Request): Client {
  return { id: `address:${networkOf(addressOf(ip))}`, visibleProfiles: null };
}

/** Returns what Express's setting `trust proxy` is for TRUST_PROXY: Express itself would trust no address with a port. */
export function trustedProxies(trusted: Config['TRUST_PROXY']): number | ((entry: string) => boolean) {
  if (typeof trusted === 'number') return trusted;
  const isTrusted = compile(trusted);
  return (entry) => isTrusted(addressOf(entry), 0);
}

/** Returns the address of an entry of X-Forwarded-For: some proxies add a port, brackets or a tab. */
function addressOf(entry: string): string {
  const text = entry.trim();
  const [, ipv4, ipv6] = /^(?:([\d.]+):\d+|\[([^\]]+)\](?::\d+)?)$/.exec(text) ?? [];
  return ipv4 ?? ipv6 ?? text;
}
