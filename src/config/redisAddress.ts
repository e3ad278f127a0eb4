/** Parses REDIS_URL into options of ioredis. */
import { nearest } from '../messages/suggestion.js';

const ADDRESS = /^redis(s?)(\+sentinel)?:\/\/([^/?#]*@)?([^/?#@,]+(?:,[^/?#@,]+)*)([/?][^#@]*)?$/;
const SHAPES =
  'must be an address such as redis://user:password@host:6379, redis://host,host for a cluster, or redis+sentinel://host,host/name (with TLS rediss); % / ? # @ in a password are percent-encoded';
/** Parameters of the address: the credentials for the sentinels themselves. */
const PARAMETERS = ['sentinelUsername', 'sentinelPassword'];

/**
 * Returns the options of ioredis for an address.
 * @throws {Error} if the address is invalid; `faultOfRedisAddress` describes the fault
 */
export function redisAddressOf(url: string) {
  const [isAddress, secure, sentinel, credentials = '', hosts = '', rest = ''] = ADDRESS.exec(url) ?? [];
  const urls = hosts.split(',').map((host) => new URL(`redis://${credentials}${host}${rest}`));
  const [{ username, password, pathname, searchParams }] = urls as [URL];
  const path = decodeURIComponent(pathname.slice(1));
  // The primary's name, nothing for a cluster, or the number of a database.
  const pathForm = sentinel ? /./ : urls.length > 1 ? /^$/ : /^[0-9]*$/;
  if (!isAddress || !pathForm.test(path)) throw new Error(SHAPES);
  const nodes = urls.map(({ hostname, port }) => ({
    host: hostname.replace(/^\[|\]$/g, ''),
    port: Number(port || (sentinel ? 26_379 : 6379)),
  }));
  const parameters = Object.fromEntries(searchParams);
  const server = sentinel ? { ...parameters, sentinels: nodes, name: path } : { ...nodes[0], db: Number(path) };
  return {
    nodes,
    parameters,
    /** The options of a single server, or of the primary that sentinels name; undefined for a cluster. */
    server: urls.length > 1 && !sentinel ? undefined : server,
    access: {
      username: decodeURIComponent(username),
      password: decodeURIComponent(password),
      ...(secure && { tls: {}, sentinelTLS: {}, enableTLSForSentinelMode: true }),
    },
  };
}

/** Describes what is wrong with an address: its form, or a parameter that has no effect; undefined if it is valid. */
export function faultOfRedisAddress(url: string): string | undefined {
  try {
    const { server, parameters } = redisAddressOf(url);
    const unknown = Object.keys(parameters).find(
      (name) => !(server && 'sentinels' in server && PARAMETERS.includes(name)),
    );
    if (unknown === undefined) return undefined;
    // The message does not repeat the name, which may be a part of a password.
    const meant = nearest(unknown, PARAMETERS, 3);
    return `names a parameter that has no effect here${meant ? `; did you mean ${meant}, which sentinels take?` : ': leave it out'}`;
  } catch {
    return SHAPES;
  }
}
