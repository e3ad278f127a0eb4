import { execFileSync } from 'node:child_process';
import http from 'node:http';
import { text } from 'node:stream/consumers';
import { expect, it, onTestFinished } from 'vitest';
import { useDatabase } from '../../support/database.js';
import { isInstalled } from '../../support/programs.js';
import { SERVE, startServer } from '../../support/serverProcess.js';

const database = useDatabase();

it.runIf(isInstalled('prlimit'))('all pages are served while no file descriptor is free', async () => {
  const { url, child, stop } = await startServer(SERVE, { DATABASE_URL: database.url, LOG_LEVEL: 'silent' });
  onTestFinished(() => stop('SIGKILL'));
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const statusOf = (path: string) =>
    new Promise<number>((resolve, reject) => {
      const headers = { Accept: 'text/html, application/xhtml+xml, */*' };
      http
        .get(url + path, { agent, headers }, (response) => {
          text(response).then(() => resolve(response.statusCode ?? 0), reject);
        })
        .on('error', reject);
    });
  await statusOf('/healthz');
  execFileSync('prlimit', ['--pid', String(child.pid), '--nofile=1:1']);
  const pages = ['/docs', '/swagger', '/problems', '/problems/unauthorized', '/packages/', '/clients/go/README.md'];
  for (const path of [...pages, '/llms.txt', '/openapi.yaml', '/docs/style.css'])
    expect([path, await statusOf(path)]).toEqual([path, 200]);
  expect(await statusOf('/nowhere')).toBe(404);
  agent.destroy();
});
