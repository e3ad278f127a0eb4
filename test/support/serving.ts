/** `serve` in this process. */
import { onTestFinished } from 'vitest';
import { Stopped } from '../../src/operator/commands/signals.js';
import { type Output, runProgram } from './command.js';
import { freePort } from './port.js';
import { until } from './until.js';

const NEVER = new AbortController().signal;

/** Starts `serve` for the current test; no other command may run in this process meanwhile. */
export async function startServing(args: string[], environment: Record<string, string>) {
  const [port, metricsPort] = [await freePort(), await freePort()];
  const settings = { PORT: String(port), METRICS_PORT: String(metricsPort), DRAIN_SECONDS: '0', LOG_LEVEL: 'info' };
  const stop = new AbortController();
  const out: Output = { stdout: '', stderr: '' };
  const finished = runProgram(['serve', ...args], '', {
    environment: { ...settings, ...environment },
    signals: { first: stop.signal, second: NEVER },
    out,
  });
  onTestFinished(async () => {
    stop.abort(new Stopped('SIGTERM'));
    await finished;
  });
  const get = (from: number, path: string) =>
    fetch(`http://127.0.0.1:${from}${path}`).then(
      async (response) => ({ status: response.status, body: await response.text() }),
      () => undefined,
    );
  const untilOk = (path: string) =>
    until(async () => (await get(port, path))?.status === 200, `${path} is 200`, 30_000);
  return {
    /** Its output so far. */
    out,
    get: (path: string) => get(port, path),
    getAsOperator: (path: string) => get(metricsPort, path),
    untilAlive: () => untilOk('/healthz'),
    untilReady: () => untilOk('/readyz'),
    /** Waits until it has ended, and returns its exit status. */
    end: async () => (await finished).code,
    /** Does what SIGTERM does, or another signal. */
    stop: (signal: NodeJS.Signals = 'SIGTERM') => stop.abort(new Stopped(signal)),
  };
}
