/** Redis configurations with which the service does not start, and those for which it waits. */
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { type AddressInfo, connect, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { openLog } from '../../../src/log.js';
import { createMetrics } from '../../../src/metrics.js';
import { packageFolder } from '../../../src/packageFolder.js';
import { createRateLimit } from '../../../src/service/rateLimit/rateLimit.js';
import { openRedisStore } from '../../../src/service/rateLimit/redisStore.js';
import { makeAuthority } from '../../support/certificates.js';
import { useCommand } from '../../support/command.js';
import { freePort } from '../../support/port.js';
import { hasRedis, startRedis, startSentinel, type TestRedis } from '../../support/redis.js';
import { makeFolder } from '../../support/temporaryFolder.js';
import { until } from '../../support/until.js';

let folder: string;
/** What Node warns of, such as listeners that pile up. */
const warnings: string[] = [];
const noteWarning = ({ message }: Error) => void warnings.push(message);
beforeAll(() => void process.on('warning', noteWarning));
afterAll(() => {
  process.off('warning', noteWarning);
  expect(warnings).toEqual([]);
});
beforeEach(async () => {
  folder = await makeFolder('branded-phone-numbers-redis-');
});

async function start(...options: string[]): Promise<TestRedis> {
  const redis = await startRedis('--dir', folder, ...options);
  onTestFinished(() => redis.kill());
  return redis;
}

async function withClient<T>(url: string, use: (client: Redis) => Promise<T>): Promise<T> {
  const client = new Redis(url);
  try {
    return await use(client);
  } finally {
    client.disconnect();
  }
}

const call = (url: string, command: string, ...parameters: string[]) =>
  withClient(url, (client) => client.call(command, ...parameters));

const urlWith = (credentials: string, { port }: TestRedis) => `redis://${credentials}@127.0.0.1:${port}`;

/** Opens a rate limit as the service does; `reasons` are the failures that it logs. */
function open(url: string) {
  const log = openLog({ LOG_LEVEL: 'silent' });
  const reasons: string[] = [];
  log.error = (({ reason }: { reason: string }) => void reasons.push(reason)) as typeof log.error;
  const metrics = createMetrics(1);
  const rateLimit = createRateLimit({ RATE_LIMIT_PER_SECOND: 10, REDIS_URL: url }, '', log, metrics);
  onTestFinished(() => rateLimit.close());
  const failures = async () => /^rate_limit_store_errors_total (\d+)$/m.exec(await metrics.text())?.[1];
  let clients = 0;
  /** Sends a request; returns whether Redis counted it. */
  async function isShared(): Promise<boolean> {
    const before = await failures();
    await rateLimit.count(`client ${clients++}`).decision;
    return (await failures()) === before;
  }
  return { rateLimit, reasons, isShared };
}

/** Starts a Redis with TLS for the current test; `startSentinel` starts a sentinel for it. */
async function startTls(folder: string) {
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

describe.skipIf(!hasRedis)('the service does not start, and says what to do,', () => {
  const command = useCommand();

  it.each<[string, string[], string, RegExp]>([
    ['no password', ['--requirepass', 'right'], '', /: NOAUTH .*; set the user and the password/],
    ['a database that does not exist', [], '/99', /: ERR DB index is out of range; leave out the number/],
  ])('if REDIS_URL has %s', async (_name, options, path, message) => {
    const redis = await start(...options);
    await expect(open(redis.url + path).rateLimit.warmUp()).rejects.toThrow(message);
  });

  it.each<[string, string[], RegExp]>([
    ['the command eval', ['~*', '+@all', '-eval'], /: NOPERM .*'eval'.*; grant its user what/],
    ['the command lrange', ['~*', '+@all', '-lrange'], /: ERR The user executing the script.*; grant its user what/],
    ['the keys of the limit', ['~other:*', '+@all'], /: NOPERM .*; grant its user what/],
  ])('if its user lacks a privilege for %s', async (_name, rights, message) => {
    const redis = await start();
    await call(redis.url, 'ACL', 'SETUSER', 'limited', 'on', '>secret', ...rights);
    await expect(open(urlWith('limited:secret', redis)).rateLimit.warmUp()).rejects.toThrow(message);
  });

  it('if the scheme of REDIS_URL does not match the server', async () => {
    const { port } = await start();
    const sentinel = await startSentinel(port, 1, 'requirepass watch');
    onTestFinished(() => sentinel.kill());
    const wrong: [string, RegExp][] = [
      [`redis://:watch@127.0.0.1:${sentinel.port}`, /'eval'; .*for sentinels use redis\+sentinel:\/\/host,host\/name$/],
      [`redis+sentinel://127.0.0.1:${sentinel.port}/main`, /NOAUTH .*; set sentinelUsername and sentinelPassword/],
      [`redis+sentinel://127.0.0.1:${sentinel.port}/other?sentinelPassword=watch`, /No such master.*; end the URL /],
      [`redis+sentinel://127.0.0.1:${port}/main`, /'sentinel'; it is not a sentinel; use redis:\/\/host$/],
      [`redis://127.0.0.1:${port},127.0.0.1:${port}`, /cluster support disabled; name one host/],
    ];
    for (const [url, message] of wrong) await expect(open(url).rateLimit.warmUp()).rejects.toThrow(message);
  });

  it('if Redis is in protected mode', async () => {
    const redis = await start('--bind', '*', '--protected-mode', 'yes');
    // Redis accepts only clients from 127.0.0.1, so the proxy connects from another address of this machine.
    const proxy = createServer((client) => {
      const server = connect({ port: redis.port, host: '127.0.0.1', localAddress: '127.0.0.2' });
      client.pipe(server).pipe(client);
      client.on('error', () => server.destroy());
      server.on('error', () => client.destroy());
    }).listen(0, '127.0.0.1');
    onTestFinished(() => void proxy.close());
    await once(proxy, 'listening');
    const { port } = proxy.address() as AddressInfo;
    await expect(open(`redis://127.0.0.1:${port}`).rateLimit.warmUp()).rejects.toThrow(
      /: DENIED Redis is running in protected mode.*; give it a password/,
    );
  });

  it('if the certificate comes from an unknown authority', async () => {
    const { url } = await startTls(folder);
    await expect(open(url).rateLimit.warmUp()).rejects.toThrow(/^REDIS_URL: .*(self.signed|unable to verify).*for TLS/);
  });

  it('if the password is wrong, with status 1', async () => {
    const redis = await start('--requirepass', 'right');
    const environment = { DATABASE_URL: command.databaseUrl, PORT: '0', REDIS_URL: urlWith(':wrong', redis) };
    const { code, stderr } = await command.run(['serve'], '', { environment });
    expect([code, stderr]).toEqual([
      1,
      'REDIS_URL: WRONGPASS invalid username-password pair or user is disabled; set the user and the password in the URL\n',
    ]);
  });

  it.each(['Redis', 'sentinels'])('unless NODE_EXTRA_CA_CERTS has the authority of %s', async (kind) => {
    const { ca, url, startSentinel } = await startTls(folder);
    const REDIS_URL = kind === 'Redis' ? url : await startSentinel();
    const environment = { DATABASE_URL: command.databaseUrl, PORT: '0', LOG_LEVEL: 'info' };
    const { child, finished } = command.start(['serve'], { ...environment, REDIS_URL, NODE_EXTRA_CA_CERTS: ca });
    child.stdout?.on('data', (text) => String(text).includes('listening') && child.kill('SIGINT'));
    const { code, stdout, stderr } = await finished;
    expect(code, stderr).toBe(0);
    expect(stdout).not.toContain('rate limit store unavailable');
  });
});

describe.skipIf(!hasRedis)('the service starts, logs the reason, and shares the limit', () => {
  it('once a cluster has all slots, although REDIS_URL names one node', async () => {
    const busPorts = [await freePort(), await freePort()];
    const startNode = (i: 0 | 1) =>
      start(
        ...['--cluster-enabled', 'yes', '--cluster-config-file', `node ${i}`],
        ...['--cluster-port', String(busPorts[i])],
      );
    const nodes = [await startNode(0), await startNode(1)] as const;
    const { rateLimit, reasons, isShared } = open(nodes[0].url);
    await rateLimit.warmUp();
    expect(await isShared()).toBe(false);
    expect(reasons[0]).toMatch(/^CLUSTERDOWN/);
    await call(nodes[0].url, 'CLUSTER', 'ADDSLOTSRANGE', '0', '8191');
    await call(nodes[1].url, 'CLUSTER', 'ADDSLOTSRANGE', '8192', '16383');
    await call(nodes[1].url, 'CLUSTER', 'MEET', '127.0.0.1', String(nodes[0].port), String(busPorts[0]));
    const areShared = () => Promise.all(Array.from({ length: 20 }, isShared));
    await until(async () => (await isShared()) && (await areShared()).every(Boolean), 'the limit is shared', 20_000);
  });

  it.each<[string, () => Promise<TestRedis>, RegExp, [string, ...string[]]]>([
    ['once a replica is promoted', startReplica, /^READONLY You can't write against/, ['REPLICAOF', 'NO', 'ONE']],
    [
      'once Redis has memory left',
      () => start('--maxmemory', '1'),
      /^OOM command not allowed/,
      ['CONFIG', 'SET', 'maxmemory', '0'],
    ],
  ])('%s', async (_name, startFailing, reason, [command, ...repair]) => {
    const redis = await startFailing();
    const { rateLimit, reasons, isShared } = open(redis.url);
    await rateLimit.warmUp();
    expect(reasons).toEqual([expect.stringMatching(reason)]);
    expect(await isShared()).toBe(false);
    await call(redis.url, command, ...repair);
    await until(isShared, 'the limit is shared');
  });

  it('with a new connection each time it finds a replica, since the address may lead to the new primary', async () => {
    const { url } = await startReplica();
    const { isShared } = open(url);
    expect(await isShared()).toBe(false);
    await withClient(url, async (client) => {
      const received = async () => Number(/total_connections_received:(\d+)/.exec(await client.info('stats'))?.[1]);
      const before = await received();
      await until(async () => {
        expect(await isShared()).toBe(false);
        return (await received()) > before + 2;
      }, 'it has connected three times');
    });
  });

  async function startReplica(): Promise<TestRedis> {
    const primary = await start('--repl-diskless-sync-delay', '0');
    const replica = await start('--replicaof', `127.0.0.1 ${primary.port}`);
    const replication = () => withClient(replica.url, (client) => client.info('replication'));
    await until(async () => (await replication()).includes('master_link_status:up'), 'the replica is connected');
    return replica;
  }
});

it.skipIf(!hasRedis)('the service logs each reason once while Redis has a new password', async () => {
  const redis = await start();
  const { rateLimit, reasons, isShared } = open(redis.url);
  await rateLimit.warmUp();
  await redis.kill();
  await redis.start('--requirepass', 'new');
  await until(async () => !(await isShared()) && reasons.some((reason) => /NOAUTH/.test(reason)), 'NOAUTH is logged');
  for (let i = 0; i < 10; i++) expect(await isShared()).toBe(false);
  expect(new Set(reasons).size).toBe(reasons.length);
  expect(reasons.filter((reason) => !/NOAUTH|ECONNREFUSED|not ready|closed/.test(reason))).toEqual([]);
});

describe.skipIf(!hasRedis)('the privileges that docs/operations.md lists', async () => {
  const text = await readFile(join(packageFolder, 'docs', 'operations.md'), 'utf8');
  const [, rights = ''] = /^ACL SETUSER limiter on >password (.*)$/m.exec(text) ?? [];
  const commands = rights.split(' ').filter((word) => word.startsWith('+'));

  /** Uses every command that an instance uses, as a Redis user with these rights. */
  async function use(granted: string): Promise<void> {
    const redis = await start();
    await call(redis.url, 'ACL', 'SETUSER', 'limiter', 'on', '>password', ...granted.split(' '));
    const store = openRedisStore(urlWith('limiter:password', redis), 3);
    onTestFinished(() => store.close());
    await until(() => store.consume('client').then(Boolean, ({ message }) => !message.includes('not ready')));
    // Requests that are a second old are removed.
    await sleep(1001);
    for (let i = 0; i < 3; i++) await store.consume('client');
    await expect(store.consume('client')).rejects.toMatchObject({ remainingPoints: 0 });
    // As after the clock of Redis was set back.
    const ahead = (Date.now() + 600_000) * 1000;
    await withClient(redis.url, (client) => client.rpush('branded-phone-numbers:limit:ahead', ahead));
    await store.consume('ahead');
  }

  it('are sufficient', () => use(rights));

  it('are all necessary', async () => {
    expect(commands.length).toBeGreaterThan(5);
    const ends = await Promise.allSettled(commands.map((name) => use(rights.replace(name, name.replace('+', '-')))));
    const unnecessary = commands.filter((_, i) => ends[i]?.status === 'fulfilled');
    expect(unnecessary).toEqual([]);
  });
});
