/** Who sends a request: whom the rate limit counts, and what they may see. */
import { isIPv4, isIPv6 } from 'node:net';
import type { Request } from 'express';
import ipaddr from 'ipaddr.js';
import { LRUCache } from 'lru-cache';
import { compile } from 'proxy-addr';
import type { Config } from '../config.js';

export interface Client {
  /** What the rate limit counts by. */
  id: string;
  /** The business profiles whose numbers the client may see; null for all. */
  visibleProfiles: readonly string[] | null;
}

/** The bits of an IPv6 address that its host can't choose. */
const IPV6_NETWORK_BITS = 64;

/** A cache of the networks of IPv6 addresses: computing one takes 0.1 ms. */
const networks = new LRUCache<string, string>({ max: 10_000 });

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

/** An IPv4 address, or the network of an IPv6 address. */
export function networkOf(address: string): string {
  if (isIPv4(address)) return address;
  if (!isIPv6(address)) return 'unknown';
  const network = networks.get(address) ?? ipv6NetworkOf(address);
  networks.set(address, network);
  return network;
}

function ipv6NetworkOf(text: string): string {
  // A link-local address may name the interface it was seen on, as `fe80::1%eth0`.
  const address = ipaddr.IPv6.parse(text.replace(/%.*/, ''));
  // The same client, whether it connects by IPv4 or by IPv4 mapped into IPv6 (RFC 4291 section 2.5.5.2).
  if (address.isIPv4MappedAddress()) return address.toIPv4Address().toString();
  const network = ipaddr.IPv6.networkAddressFromCIDR(`${address.toNormalizedString()}/${IPV6_NETWORK_BITS}`);
  return `${network}/${IPV6_NETWORK_BITS}`;
}
