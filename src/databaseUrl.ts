/** An address of PostgreSQL may name several hosts, `postgres://user@first:5432,second:5432/database`. */

/** The addresses of the single hosts, in order; one that is no URL comes back as it is. */
export function hostsOf(url: string): string[] {
  const [, begin = '', hosts = '', end = ''] = /^(\w+:\/\/(?:[^/?#]*@)?)([^/?#]*)(.*)$/.exec(url) ?? [];
  return hosts ? hosts.split(',').map((host) => `${begin}${host}${end}`) : [url];
}
