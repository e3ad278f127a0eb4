/** The log, on standard output: one line of JSON per event or, on a terminal, one line that is easy to read. */
import { createRequire } from 'node:module';
import type * as Pino from 'pino';
import { PinoPretty as pretty } from 'pino-pretty';
import type { Config } from './config.js';

/** Required, not imported: instrumentation loaded with `--require` sees nothing else, and adds trace ids to the lines. */
const { pino } = createRequire(import.meta.url)('pino') as typeof Pino;

/** Lines are written together: once there are this many bytes of them, or after this time. */
const MIN_WRITE_BYTES = 16_000;
const FLUSH_INTERVAL_MS = 100;

export type Log = ReturnType<typeof openLog>;

/** Opens the log: on a terminal, with lines that are easy to read. */
export function openLog({ LOG_LEVEL }: Pick<Config, 'LOG_LEVEL'>) {
  const output = pino.destination({ sync: false, minLength: MIN_WRITE_BYTES, periodicFlush: FLUSH_INTERVAL_MS });
  // Lines that can't be written, to a closed terminal or a full disk, are lost; the service goes on.
  output.on('error', () => {});
  if (!process.stdout.isTTY) return pino({ level: LOG_LEVEL }, output);
  return pino(
    { level: LOG_LEVEL },
    pretty({ destination: output, ignore: 'pid,hostname', translateTime: 'SYS:HH:MM:ss.l', singleLine: true }),
  );
}
