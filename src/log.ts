/** The log, on standard output: one line per event, in JSON or, on a terminal, readable. */
import { createRequire } from 'node:module';
import type * as Pino from 'pino';
import { prettyFactory } from 'pino-pretty';
import sonicBoom from 'sonic-boom';
import type { Config } from './config/config.js';

/** Loaded by `require`, because instrumentation that Node loads by `--require` patches only that; it adds trace ids to lines. */
const { pino } = createRequire(import.meta.url)('pino') as typeof Pino;

/** Lines are buffered up to this size, and for at most this time. */
const MIN_WRITE_BYTES = 16_000;
const FLUSH_INTERVAL_MS = 100;
/** Buffered for a slow reader or a full disk: some 12,000 lines, five seconds at full load. Further lines are lost. */
const MAX_BUFFERED_BYTES = 4_000_000;
const MAX_FLUSH_MS = 500;

export type Log = Pino.Logger;

/**
 * Opens a log that never blocks, whether standard output is a pipe, a file or a terminal. If that is full, slow or gone, writing is
 * retried; the number of lost lines is logged once earlier lines are written.
 */
export function openLog({ LOG_LEVEL }: Pick<Config, 'LOG_LEVEL'>): Log {
  const stdout: NodeJS.WriteStream & { _handle?: { setBlocking?(blocks: boolean): void } } = process.stdout;
  // Node writes to terminals synchronously.
  stdout._handle?.setBlocking?.(false);
  const format = stdout.isTTY
    ? prettyFactory({ ignore: 'pid,hostname', translateTime: 'SYS:HH:MM:ss.l', singleLine: true })
    : (line: string) => line;
  const output = new sonicBoom.SonicBoom({
    fd: 1,
    minLength: MIN_WRITE_BYTES,
    maxLength: MAX_BUFFERED_BYTES,
    periodicFlush: FLUSH_INTERVAL_MS,
  });
  let lostLines = 0;
  output.on('drop', () => lostLines++);
  output.on('drain', () => {
    if (lostLines === 0) return;
    log.warn({ lostLines }, 'log lines lost: standard output was full or too slow');
    lostLines = 0;
  });
  // The next flush tries again.
  output.on('error', () => {});
  // Without `flushSync`, which pino would call after a fatal line: it blocks until a full disk has space.
  const destination = {
    write: (line: string) => output.write(format(line)),
    flush: (done: () => void) => output.flush(done),
  };
  const log: Log = pino({ level: LOG_LEVEL }, destination);
  return log;
}

/** Resolves once all lines are written, or after MAX_FLUSH_MS. */
export const flushLog = (log: Log) =>
  new Promise<void>((resolve) => {
    setTimeout(resolve, MAX_FLUSH_MS).unref();
    // Twice: the first may end with a write that began before the last lines.
    log.flush(() => log.flush(() => resolve()));
  });
