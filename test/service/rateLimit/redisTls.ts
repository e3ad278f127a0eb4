/** A Redis with a certificate of an authority that only the tests know. */
import { expect, onTestFinished } from 'vitest';
import { makeAuthority } from '../../support/certificates.js';
import type { Commands } from '../../support/command.js';
import { freePort } from '../../support/port.js';
import { startRedis, startSentinel } from '../../support/redis.js';

/** Starts a Redis with TLS for the current test; `startSentinel` starts a sentinel for it. */
export async function startTls(folder: string) {
  const authority = makeAuthority(folder);
  authority.issue('redis', '127.0.0.1', 'IP:127.0.0.1');
  const [key, certificate, ca] = ['redis.key', 'redis.pem', 'ca.pem'].map(authority.file) as [string, string, string];
  const port = await freePort();
  const settings = ['--tls-cert-file', certificate, '--tls-key-file', key, '--tls-ca-cert-file', ca];
  const redis = await startRedis('--dir', folder, '--tls-port', String(port), '--tls-auth-clients', 'no', ...settings);
  onTestFinished(() => redis.kill());
  return {
    ca,
    url: `rediss://127.0.0.1:${port}`,
    async startSentinel() {
      const tlsPort = await freePort();
      const lines = [`tls-port ${tlsPort}`, 'tls-replication yes', 'tls-auth-clients no'];
      const files = [`tls-cert-file ${certificate}`, `tls-key-file ${key}`, `tls-ca-cert-file ${ca}`];
      const sentinel = await startSentinel(port, 1, ...lines, ...files);
      onTestFinished(() => sentinel.kill());
      return `rediss+sentinel://127.0.0.1:${tlsPort}/main`;
    },
  };
}

/** Fails unless `serve` uses this Redis if NODE_EXTRA_CA_CERTS has its authority. */
export async function expectTrust(command: Commands, REDIS_URL: string, NODE_EXTRA_CA_CERTS: string): Promise<void> {
  const environment = { DATABASE_URL: command.databaseUrl, PORT: '0', LOG_LEVEL: 'info' };
  const { child, finished } = command.start(['serve'], { ...environment, REDIS_URL, NODE_EXTRA_CA_CERTS });
  child.stdout?.on('data', (text) => String(text).includes('listening') && child.kill('SIGINT'));
  const { code, stdout, stderr } = await finished;
  expect(code, stderr).toBe(0);
  expect(stdout).not.toContain('rate limit store unavailable');
}
