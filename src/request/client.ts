/** The client that sends a request, and its address. */
import { isIPv4, isIPv6 } from 'node:net';
import type { Request } from 'express';
import ipaddr from 'ipaddr.js';
import { LRUCache } from 'lru-cache';
import { compile } from 'proxy-addr';
import type { Config } from '../config.js';

export interface Client {
  /** The id by which the rate limit counts its requests. */
  id: string;
  /** The business profiles whose numbers the client may see; null for all. */
  visibleProfiles: readonly string[] | null;
}

/** The length of an IPv6 network's prefix, in bits; a host can choose the rest of its address. */
const IPV6_NETWORK_BITS = 64;

/** The networks of recent IPv6 addresses: to compute one takes 0.1 ms. */
const networks = new LRUCache<string, string>({ max: 10_000 });

/** Returns the client of a request without a key. Values that are not addresses, which some proxies send, are one client. */
export function addressClient({ ip = '' }: Request): Client {
  return { id: `address:${networkOf(addressOf(ip))}`, visibleProfiles: null };
}

/**
 * Returns the value of Express's setting `trust proxy` for TRUST_PROXY. With a list of addresses, Express itself would not
 * trust a proxy whose address is given with a port.
 */
export function trustedProxies(trusted: Config['TRUST_PROXY']): number | ((entry: string) => boolean) {
  if (typeof trusted === 'number') return trusted;
  const isTrusted = compile(trusted);
  return (entry) => isTrusted(addressOf(entry), 0);
}

/** Returns the address in an entry of X-Forwarded-For, without the port, brackets or whitespace that some proxies add. */
function addressOf(entry: string): string {
  const text = entry.trim();
  const [, ipv4, ipv6] = /^(?:([\d.]+):\d+|\[([^\]]+)\](?::\d+)?)$/.exec(text) ?? [];
  return ipv4 ?? ipv6 ?? text;
}

/** Returns the network of an IPv6 address, and an IPv4 address as it is. */
export function networkOf(address: string): string {
  if (isIPv4(address)) return address;
  if (!isIPv6(address)) return 'unknown';
  const network = networks.get(address) ?? ipv6NetworkOf(address);
  networks.set(address, network);
  return network;
}

function ipv6NetworkOf(text: string): string {
  // A link-local address may have a zone, as in `fe80::1%eth0`.
  const address = ipaddr.IPv6.parse(text.replace(/%.*/, ''));
  // An IPv4 client may connect with its address mapped into IPv6 (RFC 4291 section 2.5.5.2).
  if (address.isIPv4MappedAddress()) return address.toIPv4Address().toString();
  const network = ipaddr.IPv6.networkAddressFromCIDR(`${address.toNormalizedString()}/${IPV6_NETWORK_BITS}`);
  return `${network}/${IPV6_NETWORK_BITS}`;
}
