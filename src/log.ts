/** The log: one JSON line an event, on standard output. */
import { pino } from 'pino';
import type { Config } from './config.js';

export type Log = ReturnType<typeof openLog>;

export function openLog({ LOG_LEVEL }: Pick<Config, 'LOG_LEVEL'>) {
  return pino({ level: LOG_LEVEL });
}
