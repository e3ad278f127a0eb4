/** Runs `serve` under a supervisor with systemd's default restarts. */
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

/** Runs `serve` until `stop`, and restarts it when it exits, at most five times in ten seconds. */
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
  const untilOk = (path: string) =>
    until(async () => (await get(api + path))?.status === 200, `${path} is 200`, 30_000);
  return {
    /** When the service was started, in milliseconds since 1970. */
    starts,
    /** The output of the service so far. */
    out,
    get: (path: string) => get(api + path),
    getAsOperator: (path: string) => get(`http://127.0.0.1:${metricsPort}${path}`),
    untilAlive: () => untilOk('/healthz'),
    untilReady: () => untilOk('/readyz'),
    /** Waits until the service has exited for the last time, after `stop` or five failures; returns its exit status. */
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
