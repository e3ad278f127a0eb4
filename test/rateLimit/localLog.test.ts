/** What an instance knows of a client's last window; a window that is long, or over at once, instead of a clock to watch. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { LocalLog } from '../../src/rateLimit/localLog.js';

const LONG_MS = 600_000;
const SHORT_MS = 5;

it('a client has the requests that were let through, and no other client has them', () => {
  const log = new LocalLog(LONG_MS);
  log.admit('client', performance.now());
  log.admit('client', performance.now());
  expect([log.count('client'), log.count('another')]).toEqual([2, 0]);
});

it('a client waits until the request that came first leaves the window, in whatever order they were decided', () => {
  const log = new LocalLog(LONG_MS);
  expect(log.wait('client')).toBe(LONG_MS);
  const now = performance.now();
  for (const age of [20_000, 30_000, 10_000]) log.admit('client', now - age);
  expect(log.wait('client')).toBeLessThanOrEqual(LONG_MS - 30_000);
  expect(log.wait('client')).toBeGreaterThan(0);
  log.admit('client', now - LONG_MS - 1);
  expect(log.count('client')).toBe(3);
});

it('a client that the store has refused is blocked for as long as the store says', () => {
  const log = new LocalLog(LONG_MS);
  expect(log.blockedFor('client')).toBeLessThanOrEqual(0);
  log.block('client', LONG_MS);
  expect(log.blockedFor('client')).toBeGreaterThan(0);
  expect(log.blockedFor('client')).toBeLessThanOrEqual(LONG_MS);
  expect(log.blockedFor('another')).toBeLessThanOrEqual(0);
});

it('what is older than the window no longer counts, and its client is forgotten as soon as others come', async () => {
  const log = new LocalLog(SHORT_MS);
  for (let i = 0; i < 1000; i++) log.admit(`client ${i}`, performance.now());
  log.block('client 0', SHORT_MS);
  await sleep(2 * SHORT_MS);
  expect([log.count('client 0'), log.blockedFor('client 0') <= 0]).toEqual([0, true]);
  for (let i = 0; i < 2; i++) {
    log.admit('another', performance.now());
    await sleep(2 * SHORT_MS);
  }
  log.admit('another', performance.now());
  expect(log.size).toBeLessThanOrEqual(2);
});

it('a client is remembered for a whole window, no matter how many others come meanwhile', async () => {
  const log = new LocalLog(50);
  const end = performance.now() + 500;
  let rounds = 0;
  while (performance.now() < end) {
    const client = `client ${rounds++}`;
    const begin = performance.now();
    log.admit(client, begin);
    await sleep(Math.random() * 40);
    log.admit('another', performance.now());
    const known = log.count(client);
    if (performance.now() - begin < 50) expect(known).toBe(1);
  }
});
