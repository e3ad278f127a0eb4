/** Work that is retried while PostgreSQL can't be reached. */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { withConnection } from '../../src/database/connection.js';
import { retryInOutage } from '../../src/database/outage.js';
import { errorResponse, message, OK, openImpostor, READY } from '../support/impostor.js';
import { freePort } from '../support/port.js';

const SELECTED = Buffer.concat([message('C', 'SELECT 0\0'), READY]);
const EVERY_MS = 20;
const FOREVER = { forMs: Number.POSITIVE_INFINITY, everyMs: EVERY_MS };

/** Returns work that connects to a port on which nothing listens yet, and counts its attempts. */
async function connecting() {
  const port = await freePort();
  const counts = { port, attempts: 0 };
  const work = () => {
    counts.attempts++;
    return withConnection(`postgres://someone@127.0.0.1:${port}/some`, async (connection) => {
      await connection.open();
      return 'opened';
    });
  };
  return { counts, work };
}

async function listen(port: number, ...messages: Buffer[]): Promise<void> {
  const server = await openImpostor(port, messages);
  onTestFinished(() => server.close());
}

describe('retryInOutage', () => {
  it('retries until the work succeeds', async () => {
    const { counts, work } = await connecting();
    const result = retryInOutage(work, FOREVER);
    await sleep(5 * EVERY_MS);
    await listen(counts.port, Buffer.concat([OK, READY, SELECTED]));
    expect(await result).toBe('opened');
    expect(counts.attempts).toBeGreaterThan(1);
  });

  it.each(['25006', '57P01'])('retries after an error that a failover causes: %s', async (code) => {
    let attempts = 0;
    const work = async () => {
      if (++attempts < 3) throw Object.assign(new Error('failing over'), { code });
      return attempts;
    };
    expect(await retryInOutage(work, FOREVER)).toBe(3);
  });

  it('throws the error at once if no retry helps', async () => {
    const { counts, work } = await connecting();
    await listen(counts.port, errorResponse('28P01', 'wrong password'));
    await expect(retryInOutage(work, FOREVER)).rejects.toThrow('wrong password');
    expect(counts.attempts).toBe(1);
  });

  it('throws the last error after the time of its retries', async () => {
    const { counts, work } = await connecting();
    await expect(retryInOutage(work, { forMs: 10 * EVERY_MS, everyMs: EVERY_MS })).rejects.toThrow('ECONNREFUSED');
    expect(counts.attempts).toBeGreaterThan(1);
    await expect(retryInOutage(work, { forMs: 0, everyMs: EVERY_MS })).rejects.toThrow('ECONNREFUSED');
  });

  it('throws the reason of its signal while it waits for the next attempt', async () => {
    const { counts, work } = await connecting();
    const stop = new AbortController();
    const begin = performance.now();
    const result = retryInOutage(work, { ...FOREVER, everyMs: 60_000, signal: stop.signal });
    setTimeout(() => stop.abort(new Error('stopped')), EVERY_MS);
    await expect(result).rejects.toThrow('stopped');
    expect(performance.now() - begin).toBeLessThan(30_000);
    expect(counts.attempts).toBe(1);
  });

  it('leaves it to its caller which errors may pass', async () => {
    const { counts, work } = await connecting();
    const mayPass = (error: unknown) => `${error}`.includes('ECONNREFUSED') && counts.attempts < 3;
    await expect(retryInOutage(work, { ...FOREVER, mayPass })).rejects.toThrow('ECONNREFUSED');
    expect(counts.attempts).toBe(3);
  });
});
