import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';

/** Returns the URL from the "listening on" line of a service's log, and drops the rest of the log. */
export async function listeningUrl(log: Readable): Promise<string> {
  for await (const line of createInterface(log)) {
    const url = /listening on (http:\/\/[\d.:]+)/.exec(line)?.[1];
    if (!url) continue;
    log.resume();
    return url;
  }
  throw new Error('the service did not start');
}
