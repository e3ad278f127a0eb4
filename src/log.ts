/** The log: one JSON line an event, on standard output. */
import { pino } from 'pino';
import type { Config } from './config.js';

/** Lines go out together, as one write: when there are so many bytes of them, or so many milliseconds have passed. */
const TOGETHER = 4096;
const PAUSE = 100;

export type Log = ReturnType<typeof openLog>;

export function openLog({ LOG_LEVEL }: Pick<Config, 'LOG_LEVEL'>) {
  return pino({ level: LOG_LEVEL }, pino.destination({ sync: false, minLength: TOGETHER, periodicFlush: PAUSE }));
}
