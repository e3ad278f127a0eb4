/** The log, on standard output: one line per event, in JSON or, on a terminal, readable. */
import { write } from 'node:fs';
import { createRequire } from 'node:module';
import { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import type * as Pino from 'pino';
import { prettyFactory } from 'pino-pretty';
import type { Config } from './config/config.js';

/** Loaded by `require`, because instrumentation that Node loads by `--require` patches only that; it adds trace ids to lines. */
const { pino } = createRequire(import.meta.url)('pino') as typeof Pino;

/** Lines are buffered up to this length in characters, and for at most this time. */
const MIN_WRITE_LENGTH = 16_000;
const FLUSH_INTERVAL_MS = 100;
/** Characters buffered for a slow reader or a full disk: some 12,000 lines, five seconds at full load. */
const MAX_BUFFERED_LENGTH = 4_000_000;
/** How long `flushLog` waits for a slow reader or a full disk. */
const MAX_FLUSH_MS = 500;

export type Log = ReturnType<typeof openLog>;

export function openLog({ LOG_LEVEL }: Pick<Config, 'LOG_LEVEL'>) {
  const onLost = (lostLines: number) => log.warn({ lostLines }, 'log lines lost: standard output was full or too slow');
  const log = pino({ level: LOG_LEVEL }, outputStream(onLost));
  return log;
}

/** Resolves once all lines are written, or after MAX_FLUSH_MS. */
export const flushLog = (log: Log) => new Promise<void>((resolve) => log.flush(() => resolve()));

/**
 * Returns a stream to standard output that never blocks, whether that is a pipe, a file or a terminal. If it is full, slow
 * or gone, writing is retried, and lines beyond MAX_BUFFERED_LENGTH are lost; once earlier lines are written, `onLost` is
 * called with the number of lost lines. Not pino's own destination, which blocks until a full disk has space.
 */
function outputStream(onLost: (lines: number) => void) {
  const { stdout } = process;
  const format = stdout.isTTY
    ? prettyFactory({ ignore: 'pid,hostname', translateTime: 'SYS:HH:MM:ss.l', singleLine: true })
    : (line: string) => line;
  let isOpen = false;
  let buffered = '';
  /** The bytes that are being written, or could not be. */
  let unwritten: Buffer = Buffer.alloc(0);
  let isWriting = false;
  let lost = 0;
  const isFull = () => unwritten.length + buffered.length > MAX_BUFFERED_LENGTH;

  function open(): void {
    isOpen = true;
    setInterval(send, FLUSH_INTERVAL_MS).unref();
    // Node writes to terminals synchronously.
    (stdout as { _handle?: { setBlocking?(blocks: boolean): void } })._handle?.setBlocking?.(false);
  }

  function send(): void {
    if (isWriting) return;
    if (unwritten.length === 0) [unwritten, buffered] = [Buffer.from(buffered), ''];
    if (unwritten.length === 0) return;
    isWriting = true;
    writeOut(unwritten, (count) => {
      isWriting = false;
      unwritten = unwritten.subarray(count);
      // If the buffer is still full, the line with the number would be lost, too.
      if (unwritten.length > 0 || lost === 0 || isFull()) return;
      const lines = lost;
      lost = 0;
      onLost(lines);
    });
  }

  return {
    write(line: string): void {
      if (!isOpen) open();
      if (isFull()) return void lost++;
      buffered += format(line);
      // What could not be written is retried at the next interval.
      if (buffered.length >= MIN_WRITE_LENGTH && unwritten.length === 0) send();
    },
    flush(done: () => void): void {
      const deadline = performance.now() + MAX_FLUSH_MS;
      const poll = () => {
        if (unwritten.length + buffered.length === 0 || performance.now() > deadline) return done();
        send();
        setTimeout(poll, 5);
      };
      poll();
    },
  };
}

/** Writes to standard output without blocking, and calls `done` with the number of bytes that were written. */
function writeOut(bytes: Buffer, done: (count: number) => void): void {
  const stdout: Writable & { fd?: number } = process.stdout;
  // A worker thread's standard output has no descriptor.
  if (stdout instanceof Socket || stdout.fd === undefined) {
    stdout.write(bytes, (error) => done(error ? 0 : bytes.length));
  } else {
    // Not the stream of a file, which writes synchronously and ends with the first error.
    write(stdout.fd, bytes, (_error, count) => done(count));
  }
}
