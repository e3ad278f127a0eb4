/** Finds the network of an address: an IPv6 client may use any address of its network. */
import { isIPv4, isIPv6 } from 'node:net';
import ipaddr from 'ipaddr.js';
import { LRUCache } from 'lru-cache';

/** The length of the prefix of an IPv6 address that a host can't choose, in bits. */
const IPV6_NETWORK_BITS = 64;

/** A cache of the networks of IPv6 addresses: computing one takes 0.1 ms. */
const networks = new LRUCache<string, string>({ max: 10_000 });

/** Returns an IPv4 address unchanged, the network of an IPv6 address, and `unknown` for anything else. */
export function networkOf(address: string): string {
  if (isIPv4(address)) return address;
  if (!isIPv6(address)) return 'unknown';
  const network = networks.get(address) ?? ipv6NetworkOf(address);
  networks.set(address, network);
  return network;
}

function ipv6NetworkOf(text: string): string {
  // A link-local address may name an interface, as in `fe80::1%eth0`.
  const address = ipaddr.IPv6.parse(text.replace(/%.*/, ''));
  // IPv4 mapped into IPv6 (RFC 4291 section 2.5.5.2) is the same client as the IPv4 address.
  if (address.isIPv4MappedAddress()) return address.toIPv4Address().toString();
  const network = ipaddr.IPv6.networkAddressFromCIDR(`${address.toNormalizedString()}/${IPV6_NETWORK_BITS}`);
  return `${network}/${IPV6_NETWORK_BITS}`;
}
