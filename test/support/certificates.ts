/** Certificates of the test's own authority, made by openssl. */
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** An authority in a new folder; its certificate is `ca.pem` there. */
export function makeAuthority(folder: string) {
  mkdirSync(folder, { recursive: true });
  const file = (name: string) => join(folder, name);
  const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' });
  const newKey = (name: string, subject: string) => [
    '-newkey',
    'rsa:2048',
    '-nodes',
    '-keyout',
    `${name}.key`,
    '-subj',
    subject,
  ];
  writeFileSync(
    file('ca.cnf'),
    `[ca]\ndefault_ca = own\n[own]\ndir = .\ndatabase = index.txt\nnew_certs_dir = .\nserial = serial\ncertificate = ca.pem
private_key = ca.key\ndefault_md = sha256\ndefault_days = 2\ndefault_crl_days = 2\npolicy = any\nunique_subject = no\ncopy_extensions = copy
[any]\ncommonName = supplied\n`,
  );
  writeFileSync(file('index.txt'), '');
  writeFileSync(file('serial'), '01');
  openssl('req', '-x509', '-days', '2', '-out', 'ca.pem', ...newKey('ca', '/CN=Test authority'));
  return {
    file,
    /** Lets PostgreSQL read these keys, and nobody else; it runs as `nobody` where the tests run as root. */
    own(...names: string[]) {
      chmodSync(folder, 0o755);
      for (const name of names) {
        chmodSync(file(`${name}.key`), 0o600);
        if (process.getuid?.() === 0) execFileSync('chown', ['nobody', file(`${name}.key`)]);
      }
    },
    /** Makes `name.pem` and `name.key`, for the subject's name and the other names given, such as `DNS:localhost`. */
    issue(name: string, subject: string, names?: string) {
      const extension = names ? ['-addext', `subjectAltName=${names}`] : [];
      openssl('req', '-new', '-out', `${name}.csr`, ...newKey(name, `/CN=${subject}`), ...extension);
      openssl('ca', '-batch', '-config', 'ca.cnf', '-in', `${name}.csr`, '-out', `${name}.pem`, '-notext');
    },
  };
}
