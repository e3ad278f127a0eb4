/**
 * Addresses of PostgreSQL. A host may be the folder of a Unix socket, percent-encoded
 * (`postgres://user@%2Frun%2Fpostgresql/database`), and may come as a parameter, as libpq and managed services write it
 * (`postgres://user@/database?host=/cloudsql/name`).
 */
import { isIPv6 } from 'node:net';
import { nearest } from '../messages/suggestion.js';
import { AddressError, TLS_PARAMETERS, TLS_VALUES, tlsOf } from './tls.js';

const PARTS = /^(\w+:\/\/)([^/?#]*@)?([^/?#]*)([^?#]*)(?:\?([^#]*))?/;

/**
 * The addresses of the individual hosts, in order, each with its host in place and without parameters `host` or `port`. A
 * text that is not an address is returned as it is.
 */
export function hostsOf(url: string): string[] {
  const [isAddress, scheme, user = '', authority = '', path, query = ''] = PARTS.exec(url) ?? [];
  if (!isAddress) return [url];
  // In an address of PostgreSQL, a plus sign does not stand for a space.
  const parameters = new URLSearchParams(query.replaceAll('+', '%2B'));
  const named = parameters.get('host')?.split(',');
  const ports = parameters.get('port')?.split(',') ?? [];
  const hosts = (named?.map(encodedHost) ?? authority.split(',')).map((host, i) => {
    const port = ports[i] ?? ports[0];
    return port ? `${host}:${port}` : host;
  });
  parameters.delete('host');
  parameters.delete('port');
  const rest = String(parameters).replaceAll('+', '%20');
  return hosts.map((host) => `${scheme}${user}${host.replace(/^(?=:|$)/, 'localhost')}${path}${rest && `?${rest}`}`);
}

/** The only values of some parameters that can be done. */
const VALUES: Record<string, readonly string[]> = {
  prepare: ['true', 'false'],
  channel_binding: ['disable', 'prefer'],
  gssencmode: ['disable', 'prefer'],
  ...TLS_VALUES,
};
/** The parameters that an address may have; `host` and `port` are resolved by {@link hostsOf}. */
const PARAMETERS = [
  ...['host', 'port', 'user', 'password', 'dbname', 'application_name', 'options'],
  ...[...Object.keys(VALUES), ...TLS_PARAMETERS],
];
/** PostgreSQL keeps 63 bytes of an application_name, to which the process's number is added. */
const APPLICATION_NAME = /^[ -~]{1,40}$/;

/** The address of a single host, in the driver's form. With it the driver takes nothing from the environment. */
export interface Connection {
  hostname: string;
  /** The path of a Unix socket, or a network address. */
  place: { path: string } | { host: string; port: number };
  applicationName: string;
  options: object;
}

/** @throws {AddressError} if it asks for anything that can't be done */
export function connectionOf(hostUrl: string): Connection {
  const url = new URL(hostUrl);
  const { searchParams: parameters } = url;
  checkParameters(parameters);
  const folder = socketFolderOf(url.hostname);
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const port = Number(url.port || 5432);
  const tls = tlsOf(host, parameters);
  const options = parameters.get('options');
  return {
    hostname: url.hostname,
    place: folder ? { path: `${folder}/.s.PGSQL.${port}` } : { host, port },
    applicationName: parameters.get('application_name') ?? 'branded-phone-numbers',
    options: {
      host: url.hostname,
      port,
      user: parameters.get('user') ?? decodeURIComponent(url.username),
      pass: parameters.get('password') ?? decodeURIComponent(url.password),
      database: parameters.get('dbname') ?? decodeURIComponent(url.pathname.slice(1)),
      // As for libpq, no TLS on this machine's own sockets.
      ssl: folder ? false : tls,
      sslnegotiation: parameters.get('sslnegotiation') === 'direct' ? 'direct' : null,
      prepare: parameters.get('prepare') !== 'false',
      ...(options ? { connection: { options } } : {}),
    },
  };
}

function checkParameters(parameters: URLSearchParams): void {
  for (const [name, value] of parameters) {
    if (!PARAMETERS.includes(name)) {
      const meant = nearest(name, PARAMETERS);
      const hint = meant ? `did you mean ${meant}?` : 'settings of a session go into options=-c%20name=value';
      throw new AddressError(`names the parameter ${JSON.stringify(name)}, which has no effect here; ${hint}`);
    }
    if (parameters.getAll(name).length > 1) throw new AddressError(`names ${name} more than once`);
    const values = VALUES[name] ?? [value];
    if (!values.includes(value)) {
      const meant = nearest(value, values);
      const hint = meant ? `; did you mean ${meant}?` : '';
      throw new AddressError(`names ${name}=${value}, which can't be done: it may be ${values.join(', ')}${hint}`);
    }
  }
  const name = parameters.get('application_name');
  if (name !== null && !APPLICATION_NAME.test(name)) {
    throw new AddressError('names an application_name that has not 1 to 40 characters of ASCII');
  }
}

/** The variables from which libpq takes what an address leaves out. */
const VARIABLES: Record<string, string> = {
  PGUSER: 'user',
  PGPASSWORD: 'password',
  PGDATABASE: 'dbname',
  PGOPTIONS: 'options',
  PGSSLMODE: 'sslmode',
  PGSSLROOTCERT: 'sslrootcert',
  PGSSLCERT: 'sslcert',
  PGSSLKEY: 'sslkey',
  PGSSLCRL: 'sslcrl',
  PGSSLNEGOTIATION: 'sslnegotiation',
  PGCHANNELBINDING: 'channel_binding',
  PGGSSENCMODE: 'gssencmode',
  // Not supported, but not ignored either, because they ask for safety or for another server.
  PGSSLCRLDIR: 'sslcrldir',
  PGSSLMINPROTOCOLVERSION: 'ssl_min_protocol_version',
  PGREQUIREAUTH: 'require_auth',
  PGREQUIREPEER: 'requirepeer',
  PGREQUIRESSL: 'requiressl',
  PGHOSTADDR: 'hostaddr',
  PGTARGETSESSIONATTRS: 'target_session_attrs',
  PGSERVICE: 'service',
};

/** The address, with what it leaves out taken from the PG* variables, as libpq does; a host is never left out. */
export function withEnvironment(url: string, environment: NodeJS.ProcessEnv): string {
  const [address = '', , user = '', , path = '', query = ''] = PARTS.exec(url) ?? [];
  const named = new URLSearchParams(query);
  if (user) named.set('user', '');
  if (user.includes(':')) named.set('password', '');
  if (path.length > 1) named.set('dbname', '');
  const added = Object.entries(VARIABLES)
    .filter(([variable, name]) => environment[variable] && !named.has(name))
    .map(([variable, name]) => `${name}=${encodeURIComponent(environment[variable] ?? '')}`);
  return added.length === 0 ? url : `${address}${address.includes('?') ? '&' : '?'}${added.join('&')}`;
}

/** The folder of a Unix socket that a host stands for; undefined if it is a host of a network. */
function socketFolderOf(hostname: string): string | undefined {
  const folder = decodeURIComponent(hostname);
  return folder.startsWith('/') ? folder : undefined;
}

/** What an address must be, if anything is wrong with it. Never repeats the address, since it may hold a password. */
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
  if (!user.slice(0, -1).includes('@') && hostsOf(url).every((host) => URL.canParse(host))) return undefined;
  return `must be an address such as ${protocols[0]}//user:password@host/database; / ? # @ in a password are percent-encoded`;
}

/** What an address of PostgreSQL must be, or asks for that can't be done, if anything. */
export function faultOfPostgresUrl(url: string): string | undefined {
  const fault = faultOfUrl(url, ['postgres:', 'postgresql:']);
  if (fault) return fault;
  const hosts = hostsOf(url);
  if (hosts.length > 1) {
    return 'names more than one host: name one address, behind which HAProxy finds the server (deploy/haproxy)';
  }
  try {
    for (const host of hosts) connectionOf(host);
    return undefined;
  } catch (error) {
    if (error instanceof AddressError) return error.message;
    throw error;
  }
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
