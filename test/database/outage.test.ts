import { expect, it } from 'vitest';
import { withConnection } from '../../src/database/connection.js';
import { retryInOutage } from '../../src/database/outage.js';
import { freePort } from '../support/port.js';

// That it ends, and which errors it passes, is tested with steps and `serve`.
it('retryInOutage throws the reason of its signal while it waits for the next attempt', async () => {
  const url = `postgres://someone@127.0.0.1:${await freePort()}/some`;
  let attempts = 0;
  const work = () => {
    attempts++;
    return withConnection(url, (connection) => connection.open());
  };
  const stop = new AbortController();
  const begin = performance.now();
  const endless = { forMs: Number.POSITIVE_INFINITY, everyMs: 60_000, signal: stop.signal };
  const result = retryInOutage(work, endless);
  setTimeout(() => stop.abort(new Error('stopped')), 500);
  await expect(result).rejects.toThrow('stopped');
  expect(performance.now() - begin).toBeLessThan(30_000);
  expect(attempts).toBe(1);
});
