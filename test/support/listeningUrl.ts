/** The URL in the log of a service. */
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';

/** Returns the URL from the "listening on" line of a log, if it has one. */
export const listeningUrlIn = (log: string): string | undefined => /listening on (http:\/\/[\d.:]+)/.exec(log)?.[1];

/** Waits for the URL in a service's log, and drops the rest of the log. */
export async function listeningUrl(log: Readable): Promise<string> {
  for await (const line of createInterface(log)) {
    const url = listeningUrlIn(line);
    if (!url) continue;
    log.resume();
    return url;
  }
  throw new Error('the service did not start');
}
