/** Who sends a request: whom the rate limit counts, and what they may see. */
import { isIP, isIPv6 } from 'node:net';
import type { Request } from 'express';

export interface Client {
  /** What the rate limit counts by. */
  id: string;
  /** The business profiles whose numbers the client may see; null for all. */
  visibleProfiles: readonly string[] | null;
}

/**
 * The client that is known by its address alone. An IPv6 host can choose its last 64 bits, so those don't count. What a
 * proxy gives for an address and is none, of whatever length, is one client.
 */
export function addressClient({ ip = '' }: Request): Client {
  return { id: `address:${networkOf(withoutPort(ip))}`, visibleProfiles: null };
}

/** Some proxies name the client's port as well. */
function withoutPort(address: string): string {
  const [, ipv4, ipv6] = /^(?:([\d.]+)|\[([^\]]+)\]):\d+$/.exec(address) ?? [];
  return ipv4 ?? ipv6 ?? address;
}

function networkOf(address: string): string {
  if (isIP(address) === 0) return 'unknown';
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped) return mapped;
  if (!isIPv6(address)) return address;
  const [head = '', tail] = (address.split('%')[0] ?? '').split('::');
  const left = head.split(':').filter(Boolean);
  const right = (tail ?? '').split(':').filter(Boolean);
  const groups = tail === undefined ? left : [...left, ...Array(8 - left.length - right.length).fill('0'), ...right];
  return `${groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')}::/64`;
}
