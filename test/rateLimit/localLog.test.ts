/** What an instance knows of a client's last window; a window that is long, or over at once, instead of a clock to watch. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { LocalLog } from '../../src/rateLimit/localLog.js';
import { until } from '../until.js';

const LONG_MS = 600_000;
const SHORT_MS = 5;
const MOST = 3;

let log: LocalLog;
afterEach(() => log.close());

function decide(allowed: boolean, client = 'client'): void {
  log.begin(client);
  log.end(client, allowed);
}

describe('within the window', () => {
  it('a client has the requests that were let through, and no other client has them', () => {
    log = new LocalLog(LONG_MS);
    decide(true);
    decide(true);
    decide(false);
    expect([log.count('client'), log.count('another')]).toEqual([2, 0]);
  });

  it('there is room for one more until the limit is reached, by what is decided, under way or still to come', () => {
    log = new LocalLog(LONG_MS);
    expect(log.hasRoom('client', MOST, 2)).toBe(true);
    expect(log.hasRoom('client', MOST, 3)).toBe(false);
    decide(true);
    log.begin('client');
    expect(log.hasRoom('client', MOST, 0)).toBe(true);
    expect(log.hasRoom('client', MOST, 1)).toBe(false);
    log.begin('client');
    expect(log.hasRoom('client', MOST, 0)).toBe(false);
  });

  it('there is no room for a client that was refused', () => {
    log = new LocalLog(LONG_MS);
    decide(false);
    expect(log.hasRoom('client', MOST, 0)).toBe(false);
    expect(log.hasRoom('another', MOST, 0)).toBe(true);
  });

  it('a client waits until the oldest of its requests leaves it, or for all of it where nothing is known', async () => {
    log = new LocalLog(LONG_MS);
    expect(log.wait('client')).toBe(LONG_MS);
    decide(true);
    await sleep(20);
    decide(true);
    expect(log.wait('client')).toBeLessThan(LONG_MS - 10);
    expect(log.wait('client')).toBeGreaterThan(0);
  });

  it('a client that the store has refused is blocked for as long as the store says', () => {
    log = new LocalLog(LONG_MS);
    log.begin('client');
    expect(log.blockedFor('client')).toBeLessThanOrEqual(0);
    log.block('client', LONG_MS);
    expect(log.blockedFor('client')).toBeGreaterThan(0);
    expect(log.blockedFor('client')).toBeLessThanOrEqual(LONG_MS);
    expect(log.blockedFor('another')).toBeLessThanOrEqual(0);
  });
});

describe('when the window is over', () => {
  it('what was let through or refused counts no more', async () => {
    log = new LocalLog(SHORT_MS);
    decide(true);
    decide(false);
    await until(() => log.count('client') === 0 && log.hasRoom('client', 1, 0), 'it is forgotten');
  });

  it('a request that is still under way counts on, however long ago it began', async () => {
    log = new LocalLog(SHORT_MS);
    log.begin('client');
    // Idle clients are forgotten every ten windows.
    await sleep(30 * SHORT_MS);
    expect(log.hasRoom('client', 1, 0)).toBe(false);
    log.end('client', false);
    await until(() => log.hasRoom('client', 1, 0), 'it is over');
  });
});
