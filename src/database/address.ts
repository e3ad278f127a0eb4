/** What DATABASE_URL says, as pg-connection-string reads it, in the driver's form. */
import { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { type ConnectionOptions, checkServerIdentity, createSecureContext, type PeerCertificate } from 'node:tls';
import { parse } from 'pg-connection-string';

/** What an address asks for can't be done; the message follows the name of the setting, and never repeats the address. */
class AddressError extends Error {}

const HOSTS = /^postgres(?:ql)?:\/\/(?:[^/?#]*@)?([^/?#]*)/;
const FILES = ['sslrootcert', 'sslcert', 'sslkey'];
const MODES = ['disable', 'prefer', 'require', 'verify-ca', 'verify-full'];
/** Any other would have no effect. */
const PARAMETERS = [
  ...['host', 'port', 'user', 'password', 'application_name', 'options', 'prepare', 'sslmode', 'sslnegotiation'],
  ...FILES,
];
/** PostgreSQL keeps 63 bytes of an application_name, to which the process's number is added. */
const APPLICATION_NAME = /^[ -~]{1,40}$/;

export type Address = ReturnType<typeof addressOf>;

/** @throws {AddressError} */
export function addressOf(url: string) {
  const [isAddress, hosts = ''] = HOSTS.exec(url) ?? [];
  if (!isAddress) throw new AddressError('must be an address that begins with postgres:// or postgresql://');
  if (hosts.includes(',')) throw severalHosts();
  const read = parsed(url);
  const host = read.host || 'localhost';
  if (host.includes(',')) throw severalHosts();
  const port = Number(read.port || 5432);
  if (!(Number.isInteger(port) && port > 0 && port <= 65_535)) {
    throw new AddressError('must be an address whose port is a number from 1 to 65535');
  }
  const applicationName = read.application_name ?? 'branded-phone-numbers';
  if (!APPLICATION_NAME.test(applicationName)) {
    throw new AddressError('names an application_name that has not 1 to 40 characters of ASCII');
  }
  const isSocket = host.startsWith('/');
  return {
    hostname: host,
    place: isSocket ? { path: `${host}/.s.PGSQL.${port}` } : { host, port },
    applicationName,
    options: {
      host,
      port,
      user: read.user,
      pass: read.password,
      database: read.database ?? '',
      // As for libpq, no TLS on this machine's own sockets.
      ssl: isSocket ? false : tlsOf(host, read),
      sslnegotiation: read.sslnegotiation === 'direct' ? 'direct' : null,
      prepare: read.prepare !== 'false',
      ...(read.options ? { connection: { options: read.options } } : {}),
    },
  };
}

function severalHosts(): AddressError {
  const advice = 'name one address, behind which HAProxy finds the server (deploy/haproxy)';
  return new AddressError(`names more than one host: ${advice}`);
}

type Parsed = ReturnType<typeof parse>;

/** Reads the files of certificates, too, and checks that they can be used. */
function parsed(url: string): Parsed {
  let files: [string, string][] = [];
  try {
    const { searchParams: parameters } = new URL(url.replace(/^([^?]*)/, 'postgres://host/'));
    files = FILES.flatMap((name) => parameters.getAll(name).map((file): [string, string] => [name, file]));
    const unknown = [...parameters.keys()].find((name) => !PARAMETERS.includes(name));
    if (unknown !== undefined) {
      throw new AddressError(`names the parameter ${JSON.stringify(unknown)}, which has no effect here`);
    }
    const mode = parameters.get('sslmode');
    if (mode !== null && !MODES.includes(mode)) {
      throw new AddressError(`names an sslmode other than ${MODES.join(', ')}`);
    }
    if (mode === 'verify-ca' && files.every(([name]) => name !== 'sslrootcert')) {
      throw new AddressError('needs sslrootcert=FILE with sslmode=verify-ca');
    }
    const read = parse(url, { useLibpqCompat: true });
    if (read.ssl && typeof read.ssl === 'object') {
      createSecureContext(read.ssl as ConnectionOptions);
      // Node ignores authorities that are none.
      if (read.ssl.ca) new X509Certificate(read.ssl.ca);
    }
    return read;
  } catch (error) {
    if (error instanceof AddressError) throw error;
    const { path, code, message } = error as NodeJS.ErrnoException;
    const unread = files.find(([, file]) => file === path);
    if (unread) throw new AddressError(`names ${unread.join(' ')}, which can't be read: ${code}`);
    if (code?.startsWith('ERR_OSSL')) {
      throw new AddressError(
        `names ${files.map((each) => each.join(' ')).join(', ')}, which can't be used: ${message}`,
      );
    }
    throw new AddressError(
      'must be an address such as postgres://user:password@host/database; % / ? # @ in a password are percent-encoded',
    );
  }
}

function tlsOf(host: string, { ssl, sslmode }: Parsed): ConnectionOptions | 'prefer' | false {
  if (sslmode === 'prefer') return 'prefer';
  if (!ssl) return false;
  return {
    host,
    // Without a name, Node would compare the certificate with "localhost".
    servername: isIP(host) ? undefined : host,
    checkServerIdentity: checkName,
    ...(ssl as ConnectionOptions),
  } as ConnectionOptions;
}

/** Whether a certificate is for `host`: by its names, or by its subject where that is an address and it has no names. */
function checkName(host: string, certificate: PeerCertificate): Error | undefined {
  const { subject, subjectaltname } = certificate;
  if (isIP(host) && !subjectaltname && subject.CN === host) return undefined;
  const error = checkServerIdentity(host, certificate);
  if (!error) return undefined;
  const names = subjectaltname ?? `CN:${subject.CN}`;
  error.message = `the certificate of PostgreSQL is for ${names}, not for ${host}: connect to a name that it has, or have one issued for this`;
  return error;
}

/** What an address must be, or asks for that can't be done, if anything. */
export function faultOfAddress(url: string): string | undefined {
  try {
    addressOf(url);
    return undefined;
  } catch (error) {
    if (error instanceof AddressError) return error.message;
    throw error;
  }
}
