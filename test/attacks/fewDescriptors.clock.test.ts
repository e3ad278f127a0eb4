/** A service that may open few files: idle connections of one address do not block other clients. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { createDatabase } from '../support/database.js';
import { until } from '../support/until.js';

it.skipIf(process.platform !== 'linux')(
  'a service limited to 200 open files serves other clients while one address has 250 idle connections',
  async () => {
    const { url: DATABASE_URL, drop } = await createDatabase();
    onTestFinished(drop);
    const main = join(packageFolder, 'dist/src/main.js');
    const child = spawn('bash', ['-c', 'ulimit -n 200; exec "$@"', '-', process.execPath, main, 'serve'], {
      env: { PATH: process.env.PATH ?? '', DATABASE_URL, PORT: '0', RATE_LIMIT_PER_SECOND: '0' },
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const exited = once(child, 'exit');
    onTestFinished(async () => void (child.kill('SIGKILL') && (await exited)));
    const messages: string[] = [];
    createInterface(child.stdout).on('line', (line) => messages.push(JSON.parse(line).msg));
    const portOf = (message = '') => Number(/^listening on http:\/\/127\.0\.0\.1:(\d+)/.exec(message)?.[1]);
    await until(() => portOf(messages.at(-1)) > 0, 'the service listens', 30_000);
    const port = portOf(messages.at(-1));
    const [, limit, needed] =
      /^the system allows 200 open files \(ulimit -n\): at most (\d+) client connections; MAX_CONNECTIONS is 2000, which needs (\d+)$/m.exec(
        messages.join('\n'),
      ) ?? [];
    // The process needs the rest: it opens some 20 files at startup, and ten connections to PostgreSQL.
    expect(Number(needed) - 2000).toBe(200 - Number(limit));
    expect(Number(limit)).toBeGreaterThan(140);
    expect(Number(limit)).toBeLessThan(170);

    const open = (localAddress: string): Socket => {
      const socket = connect({ host: '127.0.0.1', port, localAddress }).on('error', () => {});
      onTestFinished(() => void socket.destroy());
      return socket;
    };
    const send = async (i: number) => {
      const socket = open(`127.0.1.${i}`);
      socket.write('GET /v1/brandedPhoneNumbers HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n');
      let text = '';
      for await (const chunk of socket) text += chunk;
      return text.slice(0, 'HTTP/1.1 200'.length);
    };
    for (let i = 0; i < 250; i++) open('127.0.0.66').resume();
    await sleep(1500);
    // Ten in a row, and then ten at once, which is the number of connections to the database.
    const responses: string[] = [];
    for (let i = 1; i <= 10; i++) responses.push(await send(i));
    responses.push(...(await Promise.all(Array.from({ length: 10 }, (_, i) => send(100 + i)))));
    expect(responses).toEqual(Array(20).fill('HTTP/1.1 200'));
  },
);
