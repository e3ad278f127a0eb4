/** deploy/nginx: two instances behind nginx with that file, as Debian's nginx.conf includes it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { chmod, writeFile } from 'node:fs/promises';
import https from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { hasNginx } from '../service/http/nginx.js';
import { hasOpenssl, makeAuthority } from '../support/certificates.js';
import { requestFrom } from '../support/haproxy.js';
import { place } from '../support/placed.js';
import { claimNetwork, isListening } from '../support/port.js';
import { type PostgresServer, startPostgres } from '../support/postgresServer.js';
import { endProcess, endWithThisProcess } from '../support/process.js';
import { outcomeOf } from '../support/programs.js';
import { SERVE, type Server, startServer } from '../support/serverProcess.js';
import { useTemporaryFolder } from '../support/temporaryFolder.js';
import { repeat } from '../support/until.js';

const HOST = 'numbers.example.com';
const LIST = '/v1/brandedPhoneNumbers';
const LIMIT = 10;

describe.skipIf(!hasNginx || !hasOpenssl)('deploy/nginx', () => {
  const folder = useTemporaryFolder('branded-phone-numbers-nginx-');
  let postgres: PostgresServer;
  let network: string;
  let nginx: ChildProcess;
  let agent: https.Agent;
  let options: string[];
  const instances: Server[] = [];

  const start = (index: number) =>
    startServer(SERVE, {
      ...{ HOST: `${network}.1.${index + 1}`, PORT: '3000', AUTH: 'none', TRUST_PROXY: '1', LOG_LEVEL: 'fatal' },
      ...{ DATABASE_URL: postgres.url, RATE_LIMIT_PER_SECOND: String(LIMIT) },
    });

  function send(path: string, client: number, { headers = {}, ...init }: https.RequestOptions = {}, body?: Buffer) {
    const given = { agent, headers: { Host: HOST, ...headers }, ...init };
    return requestFrom(client, `https://${network}.0.1:8443${path}`, given, body);
  }

  beforeAll(async () => {
    // If root starts nginx, its workers run as another user.
    await chmod(folder.path, 0o755);
    [postgres, network] = await Promise.all([startPostgres(), claimNetwork()]);
    const { file, issue } = makeAuthority(folder.path);
    issue('numbers', HOST, `DNS:${HOST}`);
    agent = new https.Agent({ keepAlive: true, rejectUnauthorized: false, servername: HOST });
    const kinds = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
    const settings = `
      daemon off;
      pid ${file('pid')};
      events {}
      http {
        ${kinds.map((kind) => `${kind}_temp_path ${file(kind)};`).join(' ')}
        include ${await place('nginx/branded-phone-numbers.conf', network, folder.path)};
      }`;
    await writeFile(file('nginx.conf'), settings);
    options = ['-p', folder.path, '-e', file('error.log'), '-c', file('nginx.conf')];
    instances.push(await start(0), await start(1));
    nginx = spawn('nginx', options, { stdio: ['ignore', 'ignore', 'inherit'] });
    endWithThisProcess(nginx);
    await isListening(8443, { host: `${network}.0.1` });
  });
  afterAll(async () => {
    agent?.destroy();
    await endProcess(nginx, 'SIGTERM');
    await Promise.all(instances.map((instance) => instance.stop('SIGKILL')));
    await postgres?.remove();
  });

  it('is accepted without a warning', async () => {
    const { status, output } = await outcomeOf('nginx', ['-t', ...options]);
    expect(output).not.toMatch(/warn|emerg/);
    expect(status).toBe(0);
  });

  it('limits each client by its own address, whatever it says', async () => {
    const headers = { 'X-Forwarded-For': '192.0.2.1' };
    const burst = await Promise.all(Array.from({ length: 10 * LIMIT }, () => send(LIST, 1, { headers })));
    expect(new Set(burst.map(({ status }) => status))).toEqual(new Set([200, 429]));
    expect(await send(LIST, 2, { headers })).toMatchObject({ status: 200 });
  });

  it.each<[number, string, string, https.RequestOptions, Buffer?]>([
    [404, 'of an unknown address', '/nothing', {}],
    [404, 'of /metrics', '/metrics', {}],
    [
      405,
      'of a request with 5 MB',
      LIST,
      { method: 'POST', headers: { Connection: 'close' } },
      Buffer.alloc(5_000_000),
    ],
    [400, 'of an address of 15 KB', `${LIST}?internalName=${'a'.repeat(15_000)}`, {}],
    [431, 'of an address of 20 KB', `${LIST}?internalName=${'a'.repeat(20_000)}`, {}],
    [431, 'of headers of 40 KB', LIST, { headers: { 'X-Long': Array.from({ length: 4 }, () => 'a'.repeat(10_000)) } }],
  ])('passes on the page of a %i %s', async (status, _what, path, init, body) => {
    const response = await send(path, 3, init, body);
    const type = expect.stringContaining('application/problem+json');
    expect([response.status, response.headers['content-type']]).toEqual([status, type]);
    expect(JSON.parse(response.body)).toMatchObject({ status, type: expect.not.stringContaining('unavailable') });
  });

  it('passes on the 503 while PostgreSQL is away', async () => {
    await postgres.stop();
    const { status, headers, body } = await send(LIST, 4);
    await postgres.start();
    expect([status, headers['retry-after']]).toEqual([503, '1']);
    expect(body).toContain("The database can't be reached");
  });

  it('fails no request while the instances are restarted one after the other', async () => {
    const statuses: number[] = [];
    // Two requests of each client in 0.4 s: below the limit.
    const stop = repeat(4, async (client) => {
      statuses.push((await send(LIST, 10 + client)).status);
      await sleep(200);
    });
    for (const index of [0, 1, 0, 1]) {
      await instances[index]?.stop();
      instances[index] = await start(index);
    }
    await stop();
    expect(statuses.length).toBeGreaterThan(40);
    expect(statuses.filter((status) => status !== 200)).toEqual([]);
  });

  it('responds with a problem while no instance can be reached', async () => {
    await Promise.all(instances.map((instance) => instance.stop('SIGKILL')));
    const response = await send(LIST, 5);
    const headers = { 'content-type': 'application/problem+json', 'retry-after': '1' };
    expect(response).toMatchObject({ status: 503, headers });
    expect(JSON.parse(response.body)).toMatchObject({ status: 503, detail: 'No instance is ready. Try again.' });
  });
});
