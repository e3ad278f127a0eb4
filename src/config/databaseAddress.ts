/** Parses DATABASE_URL with pg-connection-string into options for postgres.js. */
import { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { userInfo } from 'node:os';
import { type ConnectionOptions, createSecureContext } from 'node:tls';
import { parse } from 'pg-connection-string';
import { sessionSettings } from './sessionSettings.js';

/** The scheme, the authority, the path and the query of an address. */
const ADDRESS = /^(postgres(?:ql)?:\/\/)([^/?#]*)(?:\/([^?#]*))?(?:\?([^#]*))?/;
const PARAMETERS = [
  ...['host', 'port', 'user', 'password', 'application_name', 'options', 'prepare'],
  'require_auth',
  ...['ssl', 'sslmode', 'sslnegotiation', 'sslrootcert', 'sslcert', 'sslkey', 'uselibpqcompat'],
];
/** The only values of some parameters. Every address is read as `uselibpqcompat` says. */
const VALUES = { prepare: ['true', 'false'], sslnegotiation: ['postgres', 'direct'], uselibpqcompat: ['true'] };
const NOT_ENCODED =
  'must be an address such as postgres://user:password@host/database; % / ? # @ in a password are percent-encoded';
/** Does not repeat the parameter, which may be part of a password. */
const NO_EFFECT = `names a parameter that has no effect here; leave it out, or use one of: ${PARAMETERS.join(', ')}`;

export type DatabaseAddress = ReturnType<typeof parseDatabaseUrl>;

const addresses = new Map<string, DatabaseAddress>();

/** Parses an address once: the files that it names may be absent or half replaced later. @throws as `parseDatabaseUrl` does */
export function addressOf(url: string): DatabaseAddress {
  const address = addresses.get(url) ?? parseDatabaseUrl(url);
  addresses.set(url, address);
  return address;
}

/**
 * Parses the address of a database.
 * @throws {Error} with a message that continues the setting's name ("DATABASE_URL must be …"), and repeats no part of the address
 */
export function parseDatabaseUrl(url: string) {
  const [matched, scheme = '', authority = '', path = '', query = ''] = ADDRESS.exec(url) ?? [];
  if (matched === undefined) throw new Error('must be an address that begins with postgres:// or postgresql://');
  // An @ in the path or the query means that a password has an unencoded / or ?. A # means that the rest was not parsed.
  if (matched !== url || `${path}${query}`.includes('@')) throw new Error(NOT_ENCODED);
  const parameters = new URLSearchParams(query);
  const names = [...parameters.keys()];
  if (names.some((name) => !PARAMETERS.includes(name))) throw new Error(NO_EFFECT);
  if (new Set(names).size < names.length) throw new Error('names a parameter twice; only one would have an effect');
  const hosts = authority.replace(/^.*@/s, '') + (parameters.get('host') ?? '');
  if (/,|%2c/i.test(hosts)) {
    throw new Error(
      'names more than one host: name only one; HAProxy at that host can find the right server (deploy/haproxy)',
    );
  }
  adaptParameters(parameters);
  const parsed = parseParts(scheme + authority, path, parameters);
  const host = parsed.host || 'localhost';
  const port = Number(parsed.port || 5432);
  if (!(Number.isInteger(port) && port > 0 && port <= 65_535)) {
    throw new Error('must be an address whose port is a number from 1 to 65535');
  }
  // The library knows true, 1 and 0, and returns other values unchanged.
  if (typeof parsed.ssl === 'string') {
    throw new Error('names the parameter "ssl", which has no effect here: write sslmode');
  }
  const user = parsed.user || systemUser();
  const database = parsed.database || user;
  const isSocket = /^\.?\//.test(host);
  // As in libpq, Unix domain sockets never use TLS.
  const tls = isSocket ? undefined : tlsOf(host, parsed);
  if (!isSocket) checkTls(parameters, tls);
  const requiresScram = parsed.require_auth !== undefined;
  if (requiresScram && (parsed.require_auth !== 'scram-sha-256' || tls)) {
    throw new Error(
      'may only have require_auth=scram-sha-256, and only without TLS; with TLS, use sslmode=verify-full',
    );
  }
  const overridden = SESSION_SETTINGS.find((name) => settingsIn(parsed.options ?? '').includes(name.toLowerCase()));
  if (overridden) throw new Error(`has options that set ${overridden}, which each session sets itself; leave it out`);
  return {
    hostname: host,
    requiresScram,
    tls,
    endpoint: isSocket ? { path: `${host}/.s.PGSQL.${port}` } : { host, port },
    /** The address without its user, password and parameters, for output. */
    shown: isSocket
      ? `postgres:///${database}?host=${host}&port=${port}`
      : `postgres://${host.includes(':') ? `[${host}]` : host}:${port}/${database}`,
    applicationName: parsed.application_name ?? 'branded-phone-numbers',
    options: {
      host,
      port,
      user,
      // A function, because the driver would take an empty string for no password at all.
      pass: () => saslprep(parsed.password ?? ''),
      database,
      // The connection's socket opens TLS (src/database/connection.ts).
      ssl: false,
      sslnegotiation: null,
      prepare: parsed.prepare !== 'false',
      ...(parsed.options && { connection: { options: parsed.options } }),
    },
  };
}

/** The settings that each session makes at its startup; they take precedence over the parameter `options`. */
const SESSION_SETTINGS = [...Object.keys(sessionSettings), 'application_name', 'client_encoding'];

/** Returns the names of the settings in `options`, as PostgreSQL reads it: `-c name=value`, `-cname=value`, `--name=value`. */
function settingsIn(options: string): string[] {
  const words = options.match(/(?:\\.|\S)+/gs) ?? [];
  const names = words.flatMap((word) => /^(?:-\w*?c|--)?([^=]+)=/.exec(word.replace(/\\(.)/gs, '$1'))?.[1] ?? []);
  return names.map((name) => name.toLowerCase().replaceAll('-', '_'));
}

/** Spaces, and characters that are removed, in SASLprep (RFC 4013): tables C.1.2 and B.1 of RFC 3454. */
const SPACES = /[\u00a0\u1680\u2000-\u200b\u202f\u205f\u3000]/g;
const REMOVED = /\u034f|\u200d|[\u180b-\u180d\ufe00-\ufe0f]|[\u00ad\u1806\u200c\u2060\ufeff]/g;
/** Characters that SASLprep forbids: controls and the like, and emoji, which Unicode 3.2 lacks. */
const FORBIDDEN = /[\p{C}\u{1f000}-\u{1faff}]/u;

/**
 * Prepares a password as PostgreSQL and libpq do before they hash it for SCRAM; one with forbidden characters is used
 * unchanged. Unlike them, it prepares passwords that mix directions, or have letters that are newer than Unicode 3.2.
 */
function saslprep(password: string): string {
  const mapped = password.replace(SPACES, ' ').replace(REMOVED, '').normalize('NFKC');
  return FORBIDDEN.test(mapped) || mapped === '' ? password : mapped;
}

type Parsed = Partial<ReturnType<typeof parse>>;

/** Checks the values of some parameters, and replaces libpq's values that the library does not know. */
function adaptParameters(parameters: URLSearchParams): void {
  for (const [name, values] of Object.entries(VALUES)) {
    if (parameters.getAll(name).every((value) => values.includes(value))) continue;
    throw new Error(`names ${name}, which can only be ${values.join(' or ')} here`);
  }
  parameters.delete('uselibpqcompat');
  if (parameters.get('sslrootcert') === 'system') {
    if ((parameters.get('sslmode') ?? 'verify-full') !== 'verify-full') {
      throw new Error('names sslrootcert=system, which needs sslmode=verify-full, as in libpq');
    }
    parameters.delete('sslrootcert');
    parameters.set('sslmode', 'verify-full');
  }
}

/** Parses the parts of an address, and checks that the certificates that its parameters name can be used. */
function parseParts(server: string, path: string, parameters: URLSearchParams): Parsed {
  try {
    // If there is a % that encodes nothing, the library would encode the rest of the address a second time.
    const address = server.replace(/%(?![0-9a-f]{2})/gi, '%25').replaceAll(' ', '%20');
    const parsed = parse(`${address}/?${parameters}`, { useLibpqCompat: true });
    checkFiles(parameters, parsed.ssl);
    return { ...parsed, database: decodeURIComponent(path) };
  } catch (error) {
    const { code, message, path: file } = error as NodeJS.ErrnoException;
    if (error instanceof URIError || code === 'ERR_INVALID_URL') throw new Error(NOT_ENCODED);
    const name = [...parameters.keys()].find((key) => file && parameters.get(key) === file);
    // Without the path, which Node adds: `ENOENT: no such file or directory, open '…'`.
    const reason = file ? message.replace(/, \w+ '.*$/s, '') : message;
    throw new Error(`names certificates that can't be used: ${name ? `${name}: ` : ''}${reason}`);
  }
}

/** The files that an address may name: the parameter, the member of Node's options with their text, and their form. */
const FILES = [
  ['sslrootcert', 'ca', 'a certificate in PEM form'],
  ['sslcert', 'cert', 'a certificate in PEM form'],
  ['sslkey', 'key', 'a private key in PEM form, without a passphrase'],
] as const;

/** Checks that Node can use the files that an address names. It takes an empty text for none, and trusts its own authorities. */
function checkFiles(parameters: URLSearchParams, ssl: Parsed['ssl']): void {
  const options = typeof ssl === 'object' ? (ssl as ConnectionOptions) : undefined;
  for (const [parameter, member, form] of FILES) {
    if (!parameters.has(parameter)) continue;
    try {
      if (parameters.get(parameter) === '' || options?.[member] === '') throw new Error();
      createSecureContext({ [member]: options?.[member] });
      // Node ignores an invalid CA certificate.
      if (member === 'ca' && options) new X509Certificate(options.ca as string);
    } catch {
      throw new Error(`${parameter} must be ${form}`);
    }
  }
  if (options) createSecureContext(options);
}

/** Returns the user of this process, which is the default, as in libpq. */
function systemUser(): string {
  try {
    return userInfo().username;
  } catch {
    throw new Error(
      'must name a user, because this process runs as one without a name: postgres://user:password@host/database',
    );
  }
}

interface Tls {
  /** Whether a server that does not support TLS is rejected. */
  isRequired: boolean;
  /** Whether TLS starts without a request that asks whether the server supports it. */
  isDirect: boolean;
  options: ConnectionOptions;
}

/** Checks that no parameter is without effect because of the others. */
function checkTls(parameters: URLSearchParams, tls: Tls | undefined): void {
  if (parameters.has('sslcert') !== parameters.has('sslkey')) {
    throw new Error('must name sslcert and sslkey together, or neither');
  }
  const unused = [...(tls ? [] : ['sslnegotiation']), ...(tls?.isRequired ? [] : ['sslrootcert', 'sslcert'])];
  const given = unused.find((name) => parameters.has(name));
  if (given) throw new Error(`names ${given}, which has no effect with this sslmode; leave it out, or use verify-full`);
}

/** Returns how to open TLS connections; undefined if the address asks for none. */
function tlsOf(host: string, { ssl, sslmode, sslnegotiation }: Parsed): Tls | undefined {
  const isRequired = sslmode !== 'prefer';
  if (isRequired && !ssl) return undefined;
  const isDirect = sslnegotiation === 'direct';
  const options: ConnectionOptions = {
    // Without a name, Node would compare the certificate with "localhost".
    host,
    servername: isIP(host) ? undefined : host,
    ...(isDirect && { ALPNProtocols: ['postgresql'] }),
    ...(isRequired ? (ssl as ConnectionOptions) : { rejectUnauthorized: false }),
  };
  return { isRequired, isDirect, options };
}
