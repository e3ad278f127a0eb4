/** What DATABASE_URL says, as pg-connection-string reads it, in the driver's form. */
import { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { type ConnectionOptions, createSecureContext } from 'node:tls';
import { parse } from 'pg-connection-string';

const HOSTS = /^postgres(?:ql)?:\/\/(?:[^/?#]*@)?([^/?#]*)/;
/** Any other parameter would have no effect. */
const PARAMETERS = [
  ...['host', 'port', 'user', 'password', 'database', 'application_name', 'options', 'prepare'],
  ...['ssl', 'sslmode', 'sslnegotiation', 'sslrootcert', 'sslcert', 'sslkey'],
];

export type Address = ReturnType<typeof addressOf>;

/** @throws Error whose message follows the name of the setting, and never repeats the address */
export function addressOf(url: string) {
  const [isAddress, hosts = ''] = HOSTS.exec(url) ?? [];
  if (!isAddress) throw new Error('must be an address that begins with postgres:// or postgresql://');
  const read = hosts.includes(',') ? { host: hosts } : parsed(url);
  const { host, port } = { host: read.host || 'localhost', port: Number(read.port || 5432) };
  if (host.includes(',')) {
    throw new Error('names more than one host: name one, behind which HAProxy finds the server (deploy/haproxy)');
  }
  if (!(Number.isInteger(port) && port > 0 && port <= 65_535)) {
    throw new Error('must be an address whose port is a number from 1 to 65535');
  }
  // Of `ssl`, the library leaves texts that mean nothing to it.
  const unknown = typeof read.ssl === 'string' ? 'ssl' : Object.keys(read).find((name) => !PARAMETERS.includes(name));
  if (unknown) throw new Error(`names the parameter ${JSON.stringify(unknown)}, which has no effect here`);
  const isSocket = host.startsWith('/');
  return {
    hostname: host,
    place: isSocket ? { path: `${host}/.s.PGSQL.${port}` } : { host, port },
    applicationName: read.application_name ?? 'branded-phone-numbers',
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

type Parsed = Partial<ReturnType<typeof parse>>;

/** Reads the files of certificates, too, and checks that they can be used. */
function parsed(url: string): Parsed {
  try {
    const read = parse(url, { useLibpqCompat: true });
    if (read.ssl && typeof read.ssl === 'object') {
      createSecureContext(read.ssl as ConnectionOptions);
      // Node ignores authorities that are none.
      if (read.ssl.ca) new X509Certificate(read.ssl.ca);
    }
    return read;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (error instanceof URIError || code === 'ERR_INVALID_URL') {
      throw new Error(
        'must be an address such as postgres://user:password@host/database; % / ? # @ in a password are percent-encoded',
      );
    }
    throw new Error(`names certificates that can't be used: ${message}`);
  }
}

function tlsOf(host: string, { ssl, sslmode }: Parsed): ConnectionOptions | 'prefer' | false {
  if (sslmode === 'prefer') return 'prefer';
  // Without a name, Node would compare the certificate with "localhost".
  return ssl ? { host, servername: isIP(host) ? undefined : host, ...(ssl as ConnectionOptions) } : false;
}

/** What an address must be, or asks for that can't be done, if anything. */
export function faultOfAddress(url: string): string | undefined {
  try {
    addressOf(url);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}
