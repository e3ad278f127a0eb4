/** Parses REDIS_URL into options of ioredis. */

const ADDRESS = /^redis(s?)(\+sentinel)?:\/\/([^/?#]*@)?([^/?#@,]+(?:,[^/?#@,]+)*)([/?][^#@]*)?$/;
const INVALID_ADDRESS =
  'must be an address such as redis://user:password@host:6379, redis://host,host for a cluster, or redis+sentinel://host,host/name (with TLS rediss); % / ? # @ in a password are percent-encoded';
/** The credentials for the sentinels themselves. */
const SENTINEL_PARAMETERS = ['sentinelUsername', 'sentinelPassword'];

/** Parses REDIS_URL. @throws {Error} with a message that continues this name, and repeats no part of the address */
export function parseRedisUrl(url: string) {
  const { parameters, ...address } = parseAddress(url);
  const known = address.isSentinel ? SENTINEL_PARAMETERS : [];
  if (Object.keys(parameters).every((name) => known.includes(name))) return address;
  const advice = address.isSentinel ? `, or use one of: ${known.join(', ')}` : '';
  throw new Error(`names a parameter that has no effect here; leave it out${advice}`);
}

function parseAddress(url: string) {
  try {
    const [matched, secure, sentinel, credentials = '', hosts = '', rest = ''] = ADDRESS.exec(url) ?? [];
    const urls = hosts.split(',').map((host) => new URL(`redis://${credentials}${host}${rest}`));
    const { username, password, pathname, searchParams } = urls[0] as URL;
    const isSentinel = sentinel !== undefined;
    const isCluster = urls.length > 1 && !isSentinel;
    // The path is the primary's name for sentinels, empty for a cluster, and the number of a database for a single server.
    const path = decodeURIComponent(pathname.slice(1));
    const pathForm = isSentinel ? /./ : isCluster ? /^$/ : /^[0-9]*$/;
    if (matched === undefined || !pathForm.test(path)) throw new Error(INVALID_ADDRESS);
    const nodes = urls.map(({ hostname, port }) => ({
      host: hostname.replace(/^\[|\]$/g, ''),
      port: Number(port || (isSentinel ? 26_379 : 6379)),
    }));
    const parameters = Object.fromEntries(searchParams);
    const server = isSentinel ? { ...parameters, sentinels: nodes, name: path } : { ...nodes[0], db: Number(path) };
    return {
      isSentinel,
      nodes,
      parameters,
      /** The options of a single server, or of the primary that sentinels name; undefined for a cluster. */
      server: isCluster ? undefined : server,
      access: {
        username: decodeURIComponent(username),
        password: decodeURIComponent(password),
        ...(secure && { tls: {}, sentinelTLS: {}, enableTLSForSentinelMode: true }),
      },
    };
  } catch {
    throw new Error(INVALID_ADDRESS);
  }
}
