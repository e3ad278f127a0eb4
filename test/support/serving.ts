/** `serve` as a process of the built program. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { freePort } from './port.js';
import { endProcess, endWithThisProcess } from './process.js';
import { until } from './until.js';

const MAIN = join(packageFolder, 'dist/src/main.js');

/** Starts `serve` for the current test. It is not started again if it exits. */
export async function startServing(args: string[], environment: Record<string, string>) {
  const [port, metricsPort] = [await freePort(), await freePort()];
  const settings = { PORT: String(port), METRICS_PORT: String(metricsPort), DRAIN_SECONDS: '0', ...environment };
  const child = spawn(process.execPath, [MAIN, 'serve', ...args], { env: { PATH: process.env.PATH, ...settings } });
  endWithThisProcess(child);
  onTestFinished(() => endProcess(child));
  const out = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text) => (out.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text) => (out.stderr += text));
  const closed = once(child, 'close');
  const api = `http://127.0.0.1:${port}`;
  const get = (url: string) =>
    fetch(url).then(
      async (response) => ({ status: response.status, body: await response.text() }),
      () => undefined,
    );
  const untilOk = (path: string) =>
    until(async () => (await get(api + path))?.status === 200, `${path} is 200`, 30_000);
  return {
    /** Its output so far. */
    out,
    get: (path: string) => get(api + path),
    getAsOperator: (path: string) => get(`http://127.0.0.1:${metricsPort}${path}`),
    untilAlive: () => untilOk('/healthz'),
    untilReady: () => untilOk('/readyz'),
    /** Waits until it has exited, and returns its exit status. */
    async end() {
      const [code] = await closed;
      return code as number | null;
    },
    stop: () => child.kill('SIGTERM'),
  };
}
