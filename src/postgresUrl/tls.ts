/** TLS to PostgreSQL, as an address's parameters ask for it: each does what it does for libpq, or is refused. */
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { type ConnectionOptions, checkServerIdentity, createSecureContext, type PeerCertificate } from 'node:tls';
import { FileError } from '../messages/fileError.js';

/** Something that an address asks for can't be done; the message follows the name of the setting. */
export class AddressError extends Error {}

/** The parameters that are read here, of which the values of some are known. */
export const TLS_PARAMETERS = ['sslrootcert', 'sslcert', 'sslkey', 'sslpassword', 'sslcrl', 'sslnegotiation'];
export const TLS_VALUES = {
  sslmode: ['disable', 'prefer', 'require', 'verify-ca', 'verify-full'],
  sslnegotiation: ['postgres', 'direct'],
};
/** The modes that never go on without TLS. */
const STRICT = TLS_VALUES.sslmode.slice(2);
/** The value of sslrootcert that stands for the authorities that Node trusts, those of NODE_EXTRA_CA_CERTS included. */
const SYSTEM = 'system';

/**
 * What the driver needs to know to connect to `host`: false for a connection without TLS, 'prefer' for one that has it
 * where the server does.
 * @throws {AddressError}
 */
export function tlsOf(host: string, parameters: URLSearchParams): ConnectionOptions | 'prefer' | false {
  const refuse = (message: string): never => {
    throw new AddressError(message);
  };
  const given = (name: string) => parameters.get(name) ?? undefined;
  const root = given('sslrootcert');
  const mode = given('sslmode') ?? (root === SYSTEM ? 'verify-full' : 'disable');
  const isVerified = mode !== 'require' || root !== undefined;
  const [other] = TLS_PARAMETERS.filter(given);
  if (other && !STRICT.includes(mode)) refuse(`names ${other}, which needs sslmode=verify-full, verify-ca or require`);
  if (root === SYSTEM && mode !== 'verify-full') refuse('needs sslmode=verify-full with sslrootcert=system');
  if (mode === 'verify-ca' && !root) {
    refuse('needs sslrootcert=FILE, the certificate of the authority, with sslmode=verify-ca');
  }
  if (given('sslcert') && !given('sslkey')) refuse('names sslcert, which needs sslkey=FILE');
  if (given('sslkey') && !given('sslcert')) refuse('names sslkey, which needs sslcert=FILE');
  if (given('sslpassword') && !given('sslkey')) refuse('names sslpassword, which needs sslkey=FILE');
  if (given('sslcrl') && !isVerified) refuse('names sslcrl, which needs sslrootcert=FILE');
  if (mode === 'disable') return false;
  if (mode === 'prefer') return 'prefer';
  return {
    host,
    // Without a name, Node would compare the certificate with "localhost".
    servername: isIP(host) ? undefined : host,
    rejectUnauthorized: isVerified,
    checkServerIdentity: mode === 'verify-full' ? checkName : () => undefined,
    ...secretsOf(
      { ca: root === SYSTEM ? undefined : root, cert: given('sslcert'), key: given('sslkey'), crl: given('sslcrl') },
      given('sslpassword'),
    ),
  } as ConnectionOptions;
}

const PARAMETER_OF = { ca: 'sslrootcert', cert: 'sslcert', key: 'sslkey', crl: 'sslcrl' } as const;

/** Reads the files, and checks that they can be used. */
function secretsOf(files: Record<keyof typeof PARAMETER_OF, string | undefined>, passphrase: string | undefined) {
  const secrets: ConnectionOptions = passphrase === undefined ? {} : { passphrase };
  for (const option of ['ca', 'crl', 'cert', 'key'] as const) {
    const file = files[option];
    if (file === undefined) continue;
    try {
      secrets[option] = readFileSync(file);
    } catch (error) {
      throw new AddressError(`names ${PARAMETER_OF[option]}: ${new FileError(file, 'read', error).message}`);
    }
    try {
      // Authorities that are none are ignored by Node. The certificate is tried without its key, the key together with it.
      if (option === 'ca') new X509Certificate(secrets.ca as Buffer);
      createSecureContext(option === 'cert' ? { cert: secrets.cert } : secrets);
    } catch (error) {
      const reason = `it can't be used: ${(error as Error).message}`;
      throw new AddressError(`names ${PARAMETER_OF[option]} ${file}, but ${reason}`);
    }
  }
  return secrets;
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
