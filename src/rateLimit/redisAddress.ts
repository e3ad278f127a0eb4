/** What REDIS_URL says, as ioredis takes it. */
import { nearest } from '../messages/suggestion.js';

const ADDRESS = /^redis(s?)(\+sentinel)?:\/\/([^/?#]*@)?([^/?#@,]+(?:,[^/?#@,]+)*)([/?][^#@]*)?$/;
const SHAPES =
  'must be an address such as redis://user:password@host:6379, redis://host,host for a cluster, or redis+sentinel://host,host/name (with TLS rediss); % / ? # @ in a password are percent-encoded';
/** What sentinels ask for themselves. */
const PARAMETERS = ['sentinelUsername', 'sentinelPassword'];

/** @throws {Error} unless `faultOfRedisAddress` finds no fault */
export function redisAddressOf(url: string) {
  const [isAddress, secure, sentinel, credentials = '', hosts = '', rest = ''] = ADDRESS.exec(url) ?? [];
  const urls = hosts.split(',').map((host) => new URL(`redis://${credentials}${host}${rest}`));
  const [{ username, password, pathname, searchParams }] = urls as [URL];
  const path = decodeURIComponent(pathname.slice(1));
  const paths = sentinel ? /./ : urls.length > 1 ? /^$/ : /^[0-9]*$/;
  if (!isAddress || !paths.test(path)) throw new Error(SHAPES);
  const nodes = urls.map(({ hostname, port }) => ({
    host: hostname.replace(/^\[|\]$/g, ''),
    port: Number(port || (sentinel ? 26_379 : 6379)),
  }));
  const parameters = Object.fromEntries(searchParams);
  const server = sentinel ? { ...parameters, sentinels: nodes, name: path } : { ...nodes[0], db: Number(path) };
  return {
    nodes,
    parameters,
    /** Unless the nodes are of a cluster. */
    server: urls.length > 1 && !sentinel ? undefined : server,
    access: {
      username: decodeURIComponent(username),
      password: decodeURIComponent(password),
      ...(secure && { tls: {}, sentinelTLS: {}, enableTLSForSentinelMode: true }),
    },
  };
}

/** What an address must be, or asks for that has no effect, if anything. */
export function faultOfRedisAddress(url: string): string | undefined {
  try {
    const { server, parameters } = redisAddressOf(url);
    const unknown = Object.keys(parameters).find(
      (name) => !(server && 'sentinels' in server && PARAMETERS.includes(name)),
    );
    if (unknown === undefined) return undefined;
    // An unknown name is not repeated: it may belong to a password.
    const meant = nearest(unknown, PARAMETERS, 3);
    return `names a parameter that has no effect here${meant ? `; did you mean ${meant}, which sentinels take?` : ': leave it out'}`;
  } catch {
    return SHAPES;
  }
}
