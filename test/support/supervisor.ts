/** `serve` under a supervisor that does what systemd does by default. */
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageFolder } from '../../src/packageFolder.js';
import { freePort } from './port.js';
import { until } from './until.js';

/** RestartSec, StartLimitBurst and StartLimitIntervalSec. */
const RESTART_MS = 100;
const [MAX_STARTS, INTERVAL_MS] = [5, 10_000];

const MAIN = join(packageFolder, 'dist/src/main.js');

/** Runs `serve` until `stop`: restarts it whenever it exits, but not more than five times in ten seconds. */
export async function supervise(args: string[], environment: Record<string, string>) {
  const [port, metricsPort] = [await freePort(), await freePort()];
  const settings = { PORT: String(port), METRICS_PORT: String(metricsPort), DRAIN_SECONDS: '0', ...environment };
  const starts: number[] = [];
  const out = { stdout: '', stderr: '' };
  let child: ChildProcess;
  let isStopped = false;
  let code: number | null = null;
  const ended = (async () => {
    do {
      if (starts.filter((at) => at > Date.now() - INTERVAL_MS).length >= MAX_STARTS) return;
      starts.push(Date.now());
      child = spawn(process.execPath, [MAIN, 'serve', ...args], { env: { PATH: process.env.PATH, ...settings } });
      child.stdout?.setEncoding('utf8').on('data', (text) => (out.stdout += text));
      child.stderr?.setEncoding('utf8').on('data', (text) => (out.stderr += text));
      code = await new Promise<number | null>((resolve) => child.once('close', resolve));
      await sleep(RESTART_MS);
    } while (!isStopped);
  })();
  const api = `http://127.0.0.1:${port}`;
  const get = (url: string) =>
    fetch(url).then(
      async (response) => ({ status: response.status, body: await response.text() }),
      () => undefined,
    );
  return {
    starts,
    /** What the service has written so far. */
    out,
    get: (path: string) => get(api + path),
    getAsOperator: (path: string) => get(`http://127.0.0.1:${metricsPort}${path}`),
    async untilAlive() {
      await until(async () => (await get(`${api}/healthz`))?.status === 200, 'it is alive', 30_000);
    },
    async untilReady() {
      await until(async () => (await get(`${api}/readyz`))?.status === 200, 'it is ready', 30_000);
    },
    /** Waits until the service has exited and is not restarted, which is after `stop` or five failures. */
    async end() {
      await ended;
      return code;
    },
    stop(signal: NodeJS.Signals = 'SIGTERM') {
      isStopped = true;
      child.kill(signal);
    },
  };
}
