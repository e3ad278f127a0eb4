/**
 * Addresses of PostgreSQL. One may name several hosts, `postgres://user@first:5432,second:5432/database`; a host may be the
 * folder of a Unix socket, percent-encoded (`postgres://user@%2Frun%2Fpostgresql/database`); and hosts may come as
 * parameters, as libpq and managed services write them (`postgres://user@/database?host=/cloudsql/name`).
 */
import { isIPv6 } from 'node:net';

const PARTS = /^(\w+:\/\/)([^/?#]*@)?([^/?#]*)([^?#]*)(?:\?([^#]*))?/;

/**
 * The addresses of the single hosts, in order, each with its host in place and no parameter `host` or `port`. What is
 * no address comes back as it is.
 */
export function hostsOf(url: string): string[] {
  const [isAddress, scheme, user = '', authority = '', path, query = ''] = PARTS.exec(url) ?? [];
  if (!isAddress) return [url];
  const parameters = new URLSearchParams(query);
  const named = parameters.get('host')?.split(',');
  const ports = parameters.get('port')?.split(',') ?? [];
  const hosts = (named?.map(encodedHost) ?? authority.split(',')).map((host, i) => {
    const port = ports[i] ?? ports[0];
    return port ? `${host}:${port}` : host;
  });
  parameters.delete('host');
  parameters.delete('port');
  const rest = named || ports.length > 0 ? String(parameters) : query;
  return hosts.map((host) => `${scheme}${user}${host.replace(/^(?=:|$)/, 'localhost')}${path}${rest && `?${rest}`}`);
}

/** The folder of a Unix socket that a host stands for; undefined if it is a host of a network. */
export function socketFolderOf(hostname: string): string | undefined {
  const folder = decodeURIComponent(hostname);
  return folder.startsWith('/') ? folder : undefined;
}

/** What an address must be, if anything is wrong with it. Never repeats the address, which may hold a password. */
export function faultOfUrl(url: string, protocols: readonly string[]): string | undefined {
  if (!protocols.some((protocol) => url.startsWith(`${protocol}//`))) {
    return `must be an address that begins with ${protocols.map((protocol) => `${protocol}//`).join(' or ')}`;
  }
  if (!isEncoded(url)) {
    return 'must be percent-encoded: a % in a password, for example, is written %25';
  }
  const ports = hostsOf(url).map((host) => /:([^\]]*)$/.exec(PARTS.exec(host)?.[3] ?? '')?.[1] ?? '');
  if (!ports.every((port) => /^\d*$/.test(port) && Number(port) <= 65_535 && port !== '0')) {
    return 'must be an address whose port is a number from 1 to 65535; / ? # @ in a password are percent-encoded';
  }
  const user = PARTS.exec(url)?.[2] ?? '';
  return !user.slice(0, -1).includes('@') && hostsOf(url).every((host) => URL.canParse(host))
    ? undefined
    : `must be an address such as ${protocols[0]}//user:password@host/database; / ? # @ in a password are percent-encoded`;
}

function isEncoded(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

function encodedHost(host: string): string {
  if (host.startsWith('/')) return encodeURIComponent(host);
  return isIPv6(host) ? `[${host}]` : host;
}
