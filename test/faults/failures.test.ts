/** Whatever keeps PostgreSQL from being reached or used is a 503, and the log says why; only our own errors are 500s. */
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';
import { pino } from 'pino';
import request from 'supertest';
import { beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import type { Log } from '../../src/log.js';
import { openService } from '../../src/service/app.js';
import { hasOpenssl, makeAuthority } from '../support/certificates.js';
import { errorResponse, failStatements, openImpostor, respondWith, SASL } from '../support/impostor.js';

const folder = mkdtempSync(join(tmpdir(), 'branded-phone-numbers-failures-'));
if (hasOpenssl) {
  const authority = makeAuthority(folder);
  authority.issue('named', 'elsewhere', 'DNS:elsewhere');
  authority.issue('expired', '127.0.0.1', 'IP:127.0.0.1', -1);
  makeAuthority(join(folder, 'other')).issue('unknown', '127.0.0.1', 'IP:127.0.0.1');
}

type Serve = Parameters<typeof openImpostor>[1];
type Row = [host: string, serve: Serve, parameters: string, reason: RegExp];

/** Accepts TLS with a certificate, and then closes the connection. */
function encrypt(certificate: string): Serve {
  const [cert, key] = ['pem', 'key'].map((kind) => readFileSync(join(folder, `${certificate}.${kind}`)));
  return (client) => {
    client.once('data', () => {
      client.write('S');
      const secure = new TLSSocket(client, { isServer: true, cert, key } as object);
      secure.on('error', () => {}).once('data', () => secure.end());
    });
  };
}

const VERIFY = `?sslmode=verify-full&sslrootcert=${join(folder, 'ca.pem')}`;
const fork = 'Ecould not fork new process for connection: Resource temporarily unavailable\n\0';
const login = (code: string, text: string) => (client: Duplex) =>
  void client.once('data', () => client.end(errorResponse(code, text)));
const close = (client: Duplex) => void client.once('data', () => client.end());

/** Rows as below, for hosts with TLS. */
const encrypted: Row[] = [
  ['has a certificate of an unknown authority', encrypt('other/unknown'), VERIFY, /not trusted; add sslrootcert/],
  ['has a certificate with another name', encrypt('named'), VERIFY, /does not match/],
  ['has an expired certificate', encrypt('expired'), VERIFY, /expired/],
  ['closes each connection after TLS began', encrypt('expired'), '?sslmode=require', /closed the connection/],
];

/** Returns the row of a host that ends the connection during a statement. */
function ending(code: string): Row {
  const serve = failStatements(errorResponse(code, 'terminating connection'));
  return [`ends the connection with ${code}`, serve, '', /terminating connection/];
}

/** What a server does, how the service connects, and the reason in the log. */
const outages: Row[] = [
  ...(hasOpenssl ? encrypted : []),
  ['closes each connection at once', (client) => client.destroy(), '', /closed|without|ECONNRESET/],
  ['closes each connection after the first message', close, '', /closed the connection during the login/],
  ['closes each connection during the login', respondThenClose(SASL), '', /closed the connection during the login/],
  ['never responds', () => {}, '', /does not respond/],
  ['never responds to a request for TLS', () => {}, '?sslmode=require', /does not respond/],
  ['closes each connection after a request for TLS', close, '?sslmode=prefer', /closed the connection/],
  ['does not support TLS', respondWith('N'), '?sslmode=require', /does not support TLS/],
  ['has no TLS behind its port for TLS', respondThenClose('S'), '?sslmode=require', /secure TLS connection/],
  ['responds to TLS with garbage', respondWith('S', 'garbage, garbage'), '?sslmode=require', /garbage|SSL|TLS/],
  ['can start no process', respondThenClose(fork), '', /could not fork new process/],
  ['can start no process, with TLS', respondThenClose(fork), '?sslmode=require', /could not fork new process/],
  ['can start no process, perhaps with TLS', respondThenClose(fork), '?sslmode=prefer', /could not fork new process/],
  ['is a web server', respondWith('HTTP/1.1 400 Bad Request\r\n\r\n'), '', /HTTP\/1.1 400 .*another program/],
  ['is a Redis', respondWith('-ERR unknown command\r\n'), '?sslmode=require', /-ERR .*another program/],
  ['is an SSH server', (client) => client.write('SSH-2.0-OpenSSH_9.6\r\n'), '', /SSH-2.0-OpenSSH.*another program/],
  ['refuses the password', login('28P01', 'password authentication failed'), '', /password authentication failed/],
  ['refuses the address', login('28000', 'no pg_hba.conf entry, no encryption'), '', /add sslmode=require/],
  ['has no such database', login('3D000', 'database "x" does not exist'), '', /does not exist/],
  ['has no connection left', login('53300', 'sorry, too many clients already'), '', /too many clients/],
  ['is starting', login('57P03', 'the database system is starting up'), '', /starting up/],
  ['is a pooler without that database', login('08P01', 'no such database: x'), '', /no such database/],
  ['is a pooler that refuses settings', login('08P01', 'unsupported startup parameter: x'), '', /deploy\/pgbouncer/],
  ['is a pooler whose server is gone', login('08P01', 'server conn crashed?'), '', /server conn crashed/],
  ...['08006', '25P03', '25P04', '57P01', '57P02', '57P03', '57P05'].map(ending),
];

function respondThenClose(...messages: (Buffer | string)[]): Serve {
  return (client) => {
    client.once('data', () => {
      for (const bytes of messages) client.write(bytes);
      client.end();
    });
  };
}

const UNAVAILABLE =
  '25006 3F000 40001 40P01 42501 42703 42704 42883 42P01 53100 53200 55000 55006 55P03 57014 58030 XX001';
const OURS = '22003 42601';
const failures = [
  ...UNAVAILABLE.split(' ').map((code) => [code, 503] as const),
  ...OURS.split(' ').map((code) => [code, 500] as const),
];

/** Sends two requests to a service whose PostgreSQL is an impostor; returns their statuses with `Retry-After`, and the log. */
async function outcomeOf(serve: Serve, parameters = '') {
  const impostor = await openImpostor(0, serve);
  const lines: object[] = [];
  const log = pino({ level: 'warn' }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  const url = `postgres://someone:secret@127.0.0.1:${impostor.port}/x${parameters}`;
  const config = readConfig({ REQUEST_TIMEOUT_SECONDS: '20', RATE_LIMIT_PER_SECOND: '0' });
  const { server, close } = openService(config, url, log as Log);
  const responses = await Promise.all([1, 2].map(() => request(server).get('/v1/brandedPhoneNumbers')));
  await close();
  impostor.close();
  return { responses: responses.map(({ status, headers }) => [status, headers['retry-after']]), lines };
}

describe('a request', () => {
  const outcomes = new Map<string, Awaited<ReturnType<typeof outcomeOf>>>();
  // Eight at a time, because they mostly wait. A busy machine may not complete a login in its 1.5 seconds; so those whose server
  // responds are tried once more by themselves if the reason is that it did not.
  beforeAll(async () => {
    const table = [
      ...outages,
      ...failures.map(
        ([code]) => [code, failStatements(errorResponse(code, 'it failed'), { isOpen: true }), ''] as const,
      ),
    ];
    const cases = table.values();
    const run = async () => {
      for (const [what, serve, parameters] of cases) outcomes.set(what, await outcomeOf(serve, parameters));
    };
    await Promise.all(Array.from({ length: 8 }, run));
    for (const [what, serve, parameters] of table) {
      const { lines } = outcomes.get(what) ?? expect.fail();
      if (what.startsWith('never responds') || !JSON.stringify(lines).includes('"CONNECT_TIMEOUT"')) continue;
      outcomes.set(what, await outcomeOf(serve, parameters));
    }
  });

  it.each(outages)('is a 503 if PostgreSQL %s', async (what, _serve, _parameters, reason) => {
    const { responses, lines } = outcomes.get(what) ?? expect.fail();
    expect(responses).toEqual(Array(2).fill([503, '1']));
    expect(lines).toEqual([
      expect.objectContaining({ msg: 'the database does not respond', reason: expect.stringMatching(reason) }),
    ]);
  });

  it.each(failures)('whose statement fails with %s is a %i', async (code, status) => {
    const { responses, lines } = outcomes.get(code) ?? expect.fail();
    expect(responses).toEqual(Array(2).fill([status, status === 503 ? '1' : undefined]));
    const line =
      status === 503
        ? { msg: 'the database did not complete a statement', reason: expect.stringMatching(/^it failed(: |$)/) }
        : { msg: 'request failed', err: expect.objectContaining({ code }) };
    expect(lines).toEqual(Array(2).fill(expect.objectContaining(line)));
  });
});
