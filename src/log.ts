/** The log, on standard output: one line of JSON per event or, on a terminal, one line that is easy to read. */
import { fstatSync } from 'node:fs';
import { createRequire } from 'node:module';
import type * as Pino from 'pino';
import { PinoPretty as pretty } from 'pino-pretty';
import type { Config } from './config.js';

/** Required, not imported: instrumentation loaded with `--require` sees nothing else, and adds trace ids to the lines. */
const { pino } = createRequire(import.meta.url)('pino') as typeof Pino;

/** Lines are written together: once there are this many characters of them, or after this time. */
const MIN_WRITE_LENGTH = 16_000;
const FLUSH_INTERVAL_MS = 100;
/** Characters kept for a reader that is late: some 12,000 lines, five seconds at full load. */
const MAX_KEPT_LENGTH = 4_000_000;

export type Log = ReturnType<typeof openLog>;

/** Opens the log: on a terminal, with lines that are easy to read. */
export function openLog({ LOG_LEVEL }: Pick<Config, 'LOG_LEVEL'>) {
  const level = { level: LOG_LEVEL };
  const output = fstatSync(process.stdout.fd);
  if (output.isFIFO() || output.isSocket()) {
    const log = pino(
      level,
      pipe((lostLines) => log.warn({ lostLines }, 'log lines lost: their reader was late')),
    );
    return log;
  }
  const file = pino.destination({
    sync: false,
    minLength: MIN_WRITE_LENGTH,
    maxLength: MAX_KEPT_LENGTH,
    periodicFlush: FLUSH_INTERVAL_MS,
  });
  // Lines that can't be written, to a closed terminal or a full disk, are lost; the service goes on.
  file.on('error', () => {});
  if (!process.stdout.isTTY) return pino(level, file);
  return pino(
    level,
    pretty({ destination: file, ignore: 'pid,hostname', translateTime: 'SYS:HH:MM:ss.l', singleLine: true }),
  );
}

/**
 * Returns standard output for a program that reads it, and may be late or hang. Lines that it does not read soon enough are
 * lost, and `onLost` is told how many once it reads again. Not by pino's destination: that writes in a thread, which blocks
 * while nothing is read, and without which the process can't end.
 */
function pipe(onLost: (lines: number) => void): Pino.DestinationStream {
  const { stdout } = process;
  let isOpen = false;
  let kept = '';
  let lost = 0;

  function open(): void {
    isOpen = true;
    setInterval(flush, FLUSH_INTERVAL_MS).unref();
    process.once('exit', flush);
    stdout.on('error', () => {});
  }

  function flush(): void {
    const lines = stdout.writableLength === 0 ? lost : 0;
    lost -= lines;
    if (lines > 0) onLost(lines);
    if (kept !== '') stdout.write(kept);
    kept = '';
  }

  return {
    write(line) {
      if (!isOpen) open();
      if (stdout.writableLength + kept.length > MAX_KEPT_LENGTH) return void lost++;
      kept += line;
      if (kept.length >= MIN_WRITE_LENGTH) flush();
    },
  };
}
