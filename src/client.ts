/** Who sends a request: whom the rate limit counts, and what they may see. */
import { isIPv6 } from 'node:net';
import type { Request } from 'express';

export interface Client {
  /** What the rate limit counts by. */
  id: string;
  /** The business profiles whose numbers the client may see; null for all. */
  visibleProfiles: readonly string[] | null;
}

/** The client that is known by its address alone. An IPv6 host can choose its last 64 bits, so those don't count. */
export function addressClient(request: Request): Client {
  return { id: `address:${networkOf(request.ip ?? 'unknown')}`, visibleProfiles: null };
}

function networkOf(address: string): string {
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
