import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';
import express from 'express';
import fc from 'fast-check';
import { describe, expect, inject, it } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { parseDatabaseUrl } from '../../src/config/databaseAddress.js';
import { parseRedisUrl } from '../../src/config/redisAddress.js';
import { readSettings } from '../../src/operator/commands/database.js';
import { UserError } from '../../src/userError.js';
import { runProgram } from '../support/command.js';
import { closeDatabase, openDatabase } from '../support/database.js';
import { makeFolder } from '../support/temporaryFolder.js';

const CA = join(await makeFolder('branded-phone-numbers-ca-'), 'ca.pem');
writeFileSync(CA, rootCertificates[0] as string);

describe('the settings', () => {
  it('treat an empty variable as unset', () => {
    expect(readConfig({ PORT: '', DATABASE_URL: ' \n' })).toEqual(readConfig({}));
  });

  it('ignore white space around any value, as an editor or echo leaves it', () => {
    const given = {
      ...{ PORT: '3001', HOST: '::1', AUTH: 'api-key', TRUST_PROXY: '10.0.0.0/8,1.2.3.4', LOG_LEVEL: 'warn' },
      ...{ DATABASE_URL: 'postgres://user:password@host/numbers', REDIS_URL: 'redis://host/1' },
      ...{ CORS_ORIGINS: 'https://a.example', PUBLIC_URL: 'https://a.example/b', CONTACT: 'a@b.example' },
    };
    const padded = Object.fromEntries(Object.entries(given).map(([name, value]) => [name, `\t ${value}\r\n`]));
    expect(readConfig(padded)).toEqual(readConfig(given));
  });

  type Invalid = [name: string, environment: Record<string, string>];
  const values = (name: string, ...invalid: string[]) => invalid.map((value): Invalid => [name, { [name]: value }]);
  const invalid: Invalid[] = [
    ...values('PORT', '70000', 'http'),
    ...values('CORS_ORIGINS', '*', 'https://app.example.com/', 'https://a.example.com,b.example.com'),
    ...values('CORS_ORIGINS', 'https://*.example.com', 'https://app.example.com:443', 'https://App.example.com'),
    ...values('PUBLIC_URL', 'https://.example.com', 'https://numbers.example.com/*'),
    ...values('PUBLIC_URL', 'https://me@numbers.example', 'https://numbers.example#a'),
    ...values('METRICS_HOST', '0.0.0.0', '10.0.1.1'),
    ...values('RATE_LIMIT_PER_SECOND', '-1'),
    ...values('DATABASE_URL', 'localhost:5432', 'postgres://host:port/numbers', 'nonsense'),
    ...values('REQUEST_TIMEOUT_SECONDS', '0'),
    ...values('MAX_CONNECTIONS', 'many'),
    ...values('METRICS_PORT', '-1', '70000'),
    ...values('KEEP_ALIVE_SECONDS', '0', '75s', '86401', '-1', '1.5'),
    ...values('REDIS_URL', 'http://127.0.0.1', 'sentinel://host/name', 'redis://', 'redis://host:port'),
    ...values('REDIS_URL', 'redis://host,', 'redis://%ss@host', 'redis://host/name', 'redis://first,second/1'),
    ...values('REDIS_URL', 'redis+sentinel://host:26379', 'redis://user:a/b#c@host'),
    ...values('AUTH', 'yes'),
    ...values('TRUST_PROXY', '10.0.0.0/99', '::1/129', '10.0.0.0/', '10.0.0.0/0', 'loopback/8', '1,2', '1,10.0.0.1'),
    ...values('TRUST_PROXY', 'true', '10.0.0', '-1', '1e3', '0.0.0.0', '10.0.0.1,::', '10.0.*'),
    ...values('PUBLIC_URL', 'numbers.example', 'ftp://numbers.example', 'https://numbers.example/?a=b'),
    ...values('CONTACT', 'ask Bob', 'http://numbers.example'),
    ...values('TERMS_URL', 'ask Bob', 'http://numbers.example'),
    ...values('LOG_LEVEL', 'loud'),
    ['AUTH', { HOST: '::' }],
  ];
  it.each(invalid)('reject an invalid %s and name it: %o', (name, environment) => {
    expect(() => readConfig(environment)).toThrow(UserError);
    expect(() => readConfig(environment)).toThrow(new RegExp(`^${name} must be `));
  });

  const SEVERAL_HOSTS = /^DATABASE_URL names more than one host: .*deploy\/haproxy/;
  it.each<[string, string, RegExp]>([
    ['DATABASE_URL', 'postgres://user:hidden@first:5432,[::1]:5433/numbers', SEVERAL_HOSTS],
    ['DATABASE_URL', 'postgres://user:hidden@/numbers?host=first,second', SEVERAL_HOSTS],
    ['DATABASE_URL', 'postgres://user@host:0/numbers', /port is a number from 1 to 65535/],
    ['DATABASE_URL', 'postgres://user@/numbers?host=first&port=99999', /port is a number from 1 to 65535/],
    ['DATABASE_URL', 'mysql://host/numbers', /begins with postgres:\/\/ or postgresql:\/\//],
    ['DATABASE_URL', 'postgres://user:12/hidden@host/numbers', /\/ \? # @ in a password are percent-encoded$/],
    ['DATABASE_URL', 'postgres://user:pass@host/numbers#hidden', /percent-encoded$/],
    ['DATABASE_URL', 'postgres://host/numbers?password=@hidden', /percent-encoded$/],
    ['REDIS_URL', 'redis://host?family=6', /^REDIS_URL names a parameter that has no effect here; leave it out$/],
    [
      'REDIS_URL',
      'redis+sentinel://host/name?sentinelpassword=hidden',
      /has no effect here; leave it out, or use one of: sentinelUsername, sentinelPassword$/,
    ],
    ['HOST', '0.0.0.0', /^AUTH must be set[^\n]*$/],
    ['METRICS_PORT', 'tcp://10.96.0.7:9464', /Kubernetes .* Service named "metrics": set enableServiceLinks: false/],
  ])('reject %s=%s and say what to do, without the password', (name, value, message) => {
    expect(() => readConfig({ [name]: value })).toThrow(message);
    expect(() => readConfig({ [name]: value })).not.toThrow(/hidden/);
  });

  const NO_EFFECT =
    /^DATABASE_URL names a parameter that has no effect here; leave it out, or use one of: host, .*sslmode, /;
  it.each([
    ['sslmod=require', NO_EFFECT],
    ['hidden2=1', NO_EFFECT],
    ['sslmode=verify-ca', /a CA with sslrootcert/],
    ['sslmode=require&sslrootcert=system', /sslrootcert=system, which needs sslmode=verify-full/],
    ['uselibpqcompat=false&sslmode=require', /uselibpqcompat, which can only be true/],
    ['prepare=no', /prepare, which can only be true or false/],
    ['sslmode=require&sslnegotiation=Direct', /sslnegotiation, which can only be postgres or direct/],
    [
      'sslmode=disable&sslnegotiation=direct',
      /sslnegotiation, which has no effect with this sslmode; leave it out, or use verify-full/,
    ],
    [`sslmode=prefer&sslrootcert=${CA}`, /sslrootcert, which has no effect with this sslmode/],
    [`sslmode=require&sslcert=${CA}`, /must name sslcert and sslkey together/],
    ['sslmode=verify-full&sslmode=require', /a parameter twice/],
    ['require_auth=md5', /only have require_auth=scram-sha-256, and only without TLS/],
    ['require_auth=scram-sha-256&sslmode=require', /only have require_auth=scram-sha-256, and only without TLS/],
  ])('reject a parameter of DATABASE_URL that would have no effect: %s', (query, message) => {
    expect(() => readConfig({ DATABASE_URL: `postgres://user:hidden@host/numbers?${query}` })).toThrow(message);
    expect(() => readConfig({ DATABASE_URL: `postgres://user:hidden@host/numbers?${query}` })).not.toThrow(/hidden/);
  });

  it.each([
    ['sslrootcert=system', 'sslmode=verify-full'],
    ['sslmode=verify-full&sslrootcert=system', 'sslmode=verify-full'],
    ['uselibpqcompat=true&sslmode=require', 'sslmode=require'],
    ['options=endpoint%3Dep-cool-1&sslmode=require', 'options=endpoint=ep-cool-1&sslmode=require'],
  ])('translate parameters that providers and libraries add to DATABASE_URL: %s means %s', (added, meant) => {
    const [read, expected] = [added, meant].map((query) => {
      const { DATABASE_URL } = readConfig({ DATABASE_URL: `postgres://user@host/numbers?${query}` });
      const { ssl, connection } = parseDatabaseUrl(DATABASE_URL as string).options;
      return { ssl, connection };
    });
    expect(read).toEqual(expected);
  });

  it('decode the user, the password and the database of DATABASE_URL', () => {
    const { user, pass, database } = parseDatabaseUrl('postgres://a%40b:c%2Fd%zz%3Fe f@host/g%40h').options;
    expect([user, pass(), database]).toEqual(['a@b', 'c/d%zz?e f', 'g@h']);
  });

  it('never print part of a password, whichever of its characters are not encoded', async () => {
    const unit = fc.constantFrom(...'QXZJKV12/?#@%&=:;,[]\\+ \t\'"|{');
    const password = fc.string({ unit, minLength: 4, maxLength: 20 });
    const address = fc.constantFrom(
      (secret: string) => `postgres://numbers:${secret}@127.0.0.1:1/numbers`,
      (secret: string) => `postgres://numbers@127.0.0.1:1/numbers?password=${secret}&sslmode=require`,
      (secret: string) => `postgres://numbers:${secret}@/numbers?host=/nowhere`,
    );
    const redis = fc.constantFrom(
      (secret: string) => `redis://limiter:${secret}@127.0.0.1:1`,
      (secret: string) => `redis+sentinel://:${secret}@127.0.0.1:1/name?sentinelPassword=${secret}`,
    );
    await fc.assert(
      fc.asyncProperty(password, address, redis, async (secret, addressWith, redisWith) => {
        const pieces = [...secret]
          .map((_c, i) => secret.slice(i, i + 4))
          .filter((piece) => /^(?=.*[A-Z]).{4}$/s.test(piece));
        // One at a time, because an invalid setting ends the command.
        for (const environment of [
          { DATABASE_URL: addressWith(secret) },
          { DATABASE_URL: 'postgres://127.0.0.1:1', REDIS_URL: redisWith(secret) },
        ]) {
          for (const args of [['keys', 'list'], ['config']]) {
            const output = Object.values(await runProgram(args, '', { environment })).join('\n');
            for (const piece of pieces) expect(output).not.toContain(piece);
          }
        }
        const { REDIS_URL } = accepted({ REDIS_URL: redisWith(secret) }) ?? {};
        if (REDIS_URL) expect(parseRedisUrl(REDIS_URL).nodes).toEqual([{ host: '127.0.0.1', port: 1 }]);
      }),
      { numRuns: 600 * inject('tries'), seed: 20_261_125 },
    );
  });

  it.each([
    'redis://:password@[::1]:6379/1',
    'rediss://user:p%40ss@first:6379,second',
    'rediss+sentinel://first,second:26380/a%20name?sentinelUsername=user&sentinelPassword=password',
  ])('accept %s as REDIS_URL', (REDIS_URL) => {
    expect(readConfig({ REDIS_URL }).REDIS_URL).toBe(REDIS_URL);
  });

  it('accept no TRUST_PROXY or DATABASE_URL that Express or the driver rejects', async () => {
    const proxies = fc.stringMatching(/^([0-9a-f.:/, ]|loopback){0,12}$/);
    const part = fc.stringMatching(/^[a-z0-9%@:/?#,.[\]=]{0,10}$/);
    await fc.assert(
      fc.asyncProperty(proxies, fc.tuple(part, part, part), async (TRUST_PROXY, [user, host, rest]) => {
        const config = accepted({ TRUST_PROXY });
        if (config) express().set('trust proxy', config.TRUST_PROXY);
        const { DATABASE_URL } = accepted({ DATABASE_URL: `postgres://${user}@${host}/${rest}` }) ?? {};
        if (DATABASE_URL) await closeDatabase(openDatabase(DATABASE_URL), 0);
      }),
      { numRuns: 1000 },
    );
  });

  it.each([
    ['https://Numbers.example:8443/api//', 'https://numbers.example:8443/api'],
    ['https://nümmern.example/für <alle>', 'https://xn--nmmern-3ya.example/f%C3%BCr%20%3Calle%3E'],
  ])('accept PUBLIC_URL=%s, and encode it for use in a header', (PUBLIC_URL, encoded) => {
    expect(readConfig({ PUBLIC_URL }).PUBLIC_URL).toBe(encoded);
  });

  it.each([
    { METRICS_HOST: '0.0.0.0', METRICS_PORT: '9464' },
    { CORS_ORIGINS: 'https://app_1.example.com:8443, http://[::1]:3000, http://localhost' },
    { TRUST_PROXY: '10.0.0.1/8, ::ffff:10.0.0.1, fe80::1%eth0' },
    { DATABASE_URL: `postgres://user@/numbers?host=/tmp&sslmode=verify-full&sslrootcert=${CA}` },
  ])('accept what can have an effect: %o', (environment) => {
    expect(() => readConfig(environment)).not.toThrow();
  });

  it.each(['none', 'api-key'])('accept any HOST if AUTH=%s is set', (AUTH) => {
    expect(readConfig({ HOST: '0.0.0.0', AUTH }).AUTH).toBe(AUTH);
  });

  it.each(['127.0.0.1', '127.1.2.3', '::1', 'localhost'])('do not require AUTH for the loopback address %s', (HOST) => {
    expect(readConfig({ HOST }).AUTH).toBe('none');
  });
});

describe('an environment variable that the driver reads', () => {
  const folder = 'node_modules/postgres/src';
  const source = readdirSync(folder)
    .map((file) => readFileSync(join(folder, file), 'utf8'))
    .join('\n');
  const options = /const defaults = \{([^}]*)\}/.exec(source)?.[1]?.matchAll(/^\s*(\w+)\s*:/gm) ?? [];
  const names = [
    ...[...source.matchAll(/\benv\.(\w+)/g)].map(([, name = '']) => name),
    ...[...options].map(([, name = '']) => `PG${name.toUpperCase()}`),
  ];

  it('is found by this test: the driver reads the environment in no other place', () => {
    expect(names).toEqual(expect.arrayContaining(['PGHOST', 'PGTARGETSESSIONATTRS', 'PGSSL', 'PGMAX_LIFETIME']));
    const read = /\benv\.\w+|env\['PG' \+ k\.toUpperCase\(\)\]|const env = process\.env|process(?=\.env)|url, env\)/g;
    expect(source.replace(read, '')).not.toMatch(/\benv\b/);
    expect(readFileSync('node_modules/pg-connection-string/index.js', 'utf8')).not.toMatch(/\benv\b/);
  });

  async function optionsWith(environment: NodeJS.ProcessEnv): Promise<string> {
    const { env } = process;
    try {
      process.env = { DATABASE_URL: 'postgres://', ...environment };
      const database = openDatabase(readSettings().DATABASE_URL as string);
      await closeDatabase(database, 0);
      return JSON.stringify(database.$client.options, (_name, value) =>
        typeof value === 'function' ? String(value) : value,
      );
    } finally {
      process.env = env;
    }
  }

  it.each(names)('has no effect: %s', async (name) => {
    expect(await optionsWith({ [name]: '1' })).toBe(await optionsWith({}));
  });
});

/** Returns the settings, or undefined if they are rejected. */
function accepted(environment: Record<string, string>) {
  try {
    return readConfig(environment);
  } catch (error) {
    expect(error).toBeInstanceOf(UserError);
    return undefined;
  }
}
