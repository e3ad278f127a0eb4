/** The hosts that are always this machine. */
import { BlockList, isIP } from 'node:net';

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8);
loopback.addAddress('::1', 'ipv6');

/** Returns whether `host` is `localhost`, or an address of 127.0.0.0/8 or ::1, without brackets. */
export function isLoopback(host: string): boolean {
  const version = isIP(host);
  return host.toLowerCase() === 'localhost' || (version > 0 && loopback.check(host, version === 6 ? 'ipv6' : 'ipv4'));
}
