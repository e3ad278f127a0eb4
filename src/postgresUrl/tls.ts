/** TLS to PostgreSQL, as the parameters of an address ask for it: each does what it does for libpq, or is refused. */
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { type ConnectionOptions, checkServerIdentity, createSecureContext, type PeerCertificate } from 'node:tls';
import { FileError } from '../fileError.js';
import { nearest } from '../suggestion.js';

/** Something that an address says can't be done; the message follows the name of the setting. */
export class AddressError extends Error {}

/** The parameters that are read here. */
export const TLS_PARAMETERS = [
  'sslmode',
  'sslrootcert',
  'sslcert',
  'sslkey',
  'sslpassword',
  'sslcrl',
  'sslnegotiation',
];

const MODES = ['disable', 'prefer', 'require', 'verify-ca', 'verify-full'];
/** The modes that never go on without TLS. */
const STRICT = MODES.slice(2);
/** The value of sslrootcert that stands for the authorities that Node trusts, those of NODE_EXTRA_CA_CERTS included. */
const SYSTEM = 'system';

/**
 * What the driver needs to know to connect to `host`: false for a connection without TLS, 'prefer' for one that has it
 * where the server does.
 * @throws {AddressError}
 */
export function tlsOf(host: string, parameters: URLSearchParams): ConnectionOptions | 'prefer' | false {
  const given = (name: string) => parameters.get(name) ?? undefined;
  const root = given('sslrootcert');
  const mode = given('sslmode') ?? (root === SYSTEM ? 'verify-full' : 'disable');
  checkMode(mode);
  for (const name of TLS_PARAMETERS.slice(1)) {
    if (given(name) && !STRICT.includes(mode)) {
      throw new AddressError(`names ${name}, which needs sslmode=verify-full, verify-ca or require`);
    }
  }
  if (!['postgres', 'direct', undefined].includes(given('sslnegotiation'))) {
    throw new AddressError('names an sslnegotiation that is neither postgres nor direct');
  }
  if (root === SYSTEM && mode !== 'verify-full')
    throw new AddressError('needs sslmode=verify-full with sslrootcert=system');
  if (mode === 'verify-ca' && !root) {
    throw new AddressError('needs sslrootcert=FILE, the certificate of the authority, with sslmode=verify-ca');
  }
  for (const [one, other] of [
    ['sslcert', 'sslkey'],
    ['sslkey', 'sslcert'],
    ['sslpassword', 'sslkey'],
  ] as const) {
    if (given(one) && !given(other)) throw new AddressError(`names ${one}, which needs ${other}=FILE`);
  }
  const isVerified = mode !== 'require' || root !== undefined;
  if (given('sslcrl') && !isVerified) throw new AddressError('names sslcrl, which needs sslrootcert=FILE');
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

function checkMode(mode: string): void {
  if (MODES.includes(mode)) return;
  if (mode === 'allow') {
    throw new AddressError('names sslmode=allow, which would begin without TLS; use prefer, or verify-full to be safe');
  }
  const meant = nearest(mode, MODES);
  throw new AddressError(
    `names an sslmode that is none of ${MODES.join(', ')}${meant ? `; did you mean ${meant}?` : ''}`,
  );
}

const PARAMETER_OF = { ca: 'sslrootcert', cert: 'sslcert', key: 'sslkey', crl: 'sslcrl' } as const;

/** Reads the files, and sees that they can be used. */
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
