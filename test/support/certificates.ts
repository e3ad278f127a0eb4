/** Certificates of a test authority, made by openssl, with elliptic keys, which take less CPU time to make than RSA keys. */
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type PostgresServer, startPostgres } from './postgresServer.js';
import { isInstalled } from './programs.js';
import { makeFolder } from './temporaryFolder.js';

export const hasOpenssl = isInstalled('openssl');

const NEW_KEY = '-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes';

/** Makes an authority in a new folder; its certificate there is `ca.pem`. */
export function makeAuthority(folder: string) {
  mkdirSync(folder, { recursive: true });
  const file = (name: string) => join(folder, name);
  const openssl = (command: string, ...args: string[]) =>
    execFileSync('openssl', [...command.split(' '), ...args], { cwd: folder, stdio: 'pipe' });
  openssl(`req -x509 -days 2 -out ca.pem ${NEW_KEY} -keyout ca.key`, '-subj', '/CN=Test authority');
  return {
    file,
    /** Makes these keys readable by PostgreSQL only, which runs as `nobody` if the tests run as root. */
    own(...names: string[]) {
      chmodSync(folder, 0o755);
      for (const name of names) {
        chmodSync(file(`${name}.key`), 0o600);
        if (process.getuid?.() === 0) execFileSync('chown', ['nobody', file(`${name}.key`)]);
      }
    },
    /** Makes `name.pem` and `name.key` for a common name and alternative names such as `DNS:localhost`, valid for `days`. */
    issue(name: string, commonName: string, alternativeNames?: string, days = 2) {
      writeFileSync(file(`${name}.cnf`), alternativeNames ? `subjectAltName=${alternativeNames}\n` : '');
      openssl(`req ${NEW_KEY} -keyout ${name}.key -out ${name}.csr`, '-subj', `/CN=${commonName}`);
      const files = `-in ${name}.csr -out ${name}.pem -extfile ${name}.cnf`;
      openssl(`x509 -req -days ${days} -CA ca.pem -CAkey ca.key -CAcreateserial ${files}`);
    },
  };
}

/** Starts a PostgreSQL with TLS, whose certificate is for 127.0.0.1. */
export async function startPostgresWithTls(): Promise<PostgresServer> {
  const authority = makeAuthority(await makeFolder('branded-phone-numbers-tls-'));
  authority.issue('server', '127.0.0.1');
  authority.own('server');
  const [ssl_cert_file, ssl_key_file] = [authority.file('server.pem'), authority.file('server.key')];
  return startPostgres({ ssl: 'on', ssl_cert_file, ssl_key_file });
}
