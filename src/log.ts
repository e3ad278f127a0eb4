/** The log, on standard output: one line per event, in JSON or, on a terminal, readable. */
import { fstatSync } from 'node:fs';
import { createRequire } from 'node:module';
import type * as Pino from 'pino';
import { PinoPretty as pretty } from 'pino-pretty';
import type { Config } from './config/config.js';

/** Loaded by `require`, because instrumentation that Node loads by `--require` patches only that; it adds trace ids to lines. */
const { pino } = createRequire(import.meta.url)('pino') as typeof Pino;

/** Lines are buffered up to this length in characters, and for at most this time. */
const MIN_WRITE_LENGTH = 16_000;
const FLUSH_INTERVAL_MS = 100;
/** Characters buffered for a slow reader: some 12,000 lines, five seconds at full load. */
const MAX_BUFFERED_LENGTH = 4_000_000;

export type Log = ReturnType<typeof openLog>;

/** Opens the log. Lines that can't be written, as to a closed terminal or a full disk, are lost, and the service continues. */
export function openLog({ LOG_LEVEL }: Pick<Config, 'LOG_LEVEL'>) {
  const options = { level: LOG_LEVEL };
  // Not `process.stdout.fd`, which a worker thread does not have (bench/served.js).
  const output = fstatSync(1);
  if (output.isFIFO() || output.isSocket()) {
    const onLost = (lostLines: number) => log.warn({ lostLines }, 'log lines lost: their reader is too slow');
    const log = pino(options, streamToPipe(onLost));
    return log;
  }
  const file = pino.destination({
    sync: false,
    minLength: MIN_WRITE_LENGTH,
    maxLength: MAX_BUFFERED_LENGTH,
    periodicFlush: FLUSH_INTERVAL_MS,
  });
  file.on('error', () => {});
  if (!process.stdout.isTTY) return pino(options, file);
  return pino(
    options,
    pretty({ destination: file, ignore: 'pid,hostname', translateTime: 'SYS:HH:MM:ss.l', singleLine: true }),
  );
}

/**
 * Returns a stream to standard output, which is a pipe to a program that may be slow or hang. Lines beyond
 * MAX_BUFFERED_LENGTH are lost; when the program has read the earlier ones, `onLost` is called with the number of lost lines.
 * Not pino's own destination: its writes block while the program does not read, and keep the process from exiting.
 */
function streamToPipe(onLost: (lines: number) => void): Pino.DestinationStream {
  const { stdout } = process;
  let isOpen = false;
  let buffered = '';
  let lost = 0;

  function open(): void {
    isOpen = true;
    setInterval(flush, FLUSH_INTERVAL_MS).unref();
    process.once('exit', flush);
    stdout.on('error', () => {});
  }

  function flush(): void {
    if (lost > 0 && stdout.writableLength === 0) {
      const count = lost;
      lost = 0;
      onLost(count);
    }
    if (buffered !== '') stdout.write(buffered);
    buffered = '';
  }

  return {
    write(line) {
      if (!isOpen) open();
      if (stdout.writableLength + buffered.length > MAX_BUFFERED_LENGTH) return void lost++;
      buffered += line;
      if (buffered.length >= MIN_WRITE_LENGTH) flush();
    },
  };
}
