/** The client that sends a request, and its address. */
import { isIPv4, isIPv6 } from 'node:net';
import type { Request } from 'express';
import ipaddr from 'ipaddr.js';
import { compile } from 'proxy-addr';
import type { Config } from '../config/config.js';

export interface Client {
  /** The id by which the rate limit counts its requests. */
  id: string;
  /** The business profiles whose numbers the client may see; null for all. */
  visibleProfiles: readonly string[] | null;
}

/** Returns the client of a request without a key: its address. Some proxies send no address: their requests have one client. */
export function addressClient({ ip = '' }: Request): Client {
  return { id: `address:${networkOf(addressOf(ip))}`, visibleProfiles: null };
}

/** The most proxies of a list in TRUST_PROXY that a request may have passed: a client could send a long list of their addresses. */
const MAX_LISTED_PROXIES = 20;

/**
 * Converts TRUST_PROXY to a value for Express's setting `trust proxy`. A list of addresses becomes a function, since
 * Express would not trust a proxy that is given with its port. The client is the first entry from the right that is not trusted,
 * or the one after MAX_LISTED_PROXIES, which a trusted proxy has appended as well.
 */
export function trustedProxies(trusted: Config['TRUST_PROXY']): number | ((entry: string, index: number) => boolean) {
  if (typeof trusted === 'number') return trusted;
  const isTrusted = compile(trusted);
  return (entry, index) => index < MAX_LISTED_PROXIES && isTrusted(addressOf(entry), 0);
}

/** Returns the address in an entry of X-Forwarded-For, without a port, brackets or whitespace. */
function addressOf(entry: string): string {
  const text = entry.trim();
  const [, ipv4, ipv6] = /^(?:([\d.]+):\d+|\[([^\]]+)\](?::\d+)?)$/.exec(text) ?? [];
  return ipv4 ?? ipv6 ?? text;
}

/**
 * Returns the IPv4 address of a text, also if it is mapped into IPv6 (RFC 4291 section 2.5.5.2); for another IPv6 address its
 * network of 64 bits, since a client may use any address of its network; and `unknown` for anything else.
 */
function networkOf(text: string): string {
  if (isIPv4(text)) return text;
  if (!isIPv6(text)) return 'unknown';
  // A link-local address may name an interface, as in `fe80::1%eth0`.
  const address = ipaddr.process(text.replace(/%.*/, ''));
  if (!(address instanceof ipaddr.IPv6)) return address.toString();
  return `${new ipaddr.IPv6([...address.parts.slice(0, 4), 0, 0, 0, 0])}/64`;
}
