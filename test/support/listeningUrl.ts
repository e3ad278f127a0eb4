import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';

/** Where a service listens, as the first lines of its log say; what it logs later is dropped. */
export async function listeningUrl(log: Readable): Promise<string> {
  for await (const line of createInterface(log)) {
    const url = /listening on (http:\/\/[\d.:]+)/.exec(line)?.[1];
    if (!url) continue;
    log.resume();
    return url;
  }
  throw new Error('the service did not start');
}
