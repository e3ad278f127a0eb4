/**
 * Sends requests at a rate that does not depend on the responses, as many clients together do, each from another address,
 * and counts the responses by status. It runs in its own process, so that it does not delay the measurements beside it:
 * `flood.ts URL RATE CONNECTIONS SECONDS`, and a line of JSON on standard output (`Flooded`).
 */
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

export interface Flooded {
  sent: number;
  /** How many could not be sent on time, because all connections were waiting for a response. */
  heldBack: number;
  statuses: Record<string, number>;
  /** Responses of 200 that differ from the first one. */
  wrong: number;
  /** Connections that ended without a response announcing it. */
  lost: number;
}

/** Milliseconds between two batches of requests, and for the last responses to come. */
const TICK = 5;
const LAST_ANSWERS = 6000;

const [address = '', rate = '', connections = '', seconds = ''] = process.argv.slice(2);
const { hostname, port, pathname, search } = new URL(address);
const flooded: Flooded = { sent: 0, heldBack: 0, statuses: {}, wrong: 0, lost: 0 };
const free: Socket[] = [];
let right: Buffer | undefined;
let isOver = false;

// The connections come first: each turn of Node's event loop accepts one, no matter how many wait.
for (let i = 0; i < Number(connections); i++) {
  open();
  if (i % 50 === 49) await sleep(50);
}
while (free.length < Number(connections)) await sleep(50);
const begin = performance.now();
const end = begin + Number(seconds) * 1000;
let due = 0;
const tick = setInterval(() => {
  const now = performance.now();
  if (now > end) return finish();
  const all = ((now - begin) / 1000) * Number(rate);
  for (; due < all; due++) {
    const socket = free.pop();
    if (!socket) {
      flooded.heldBack += Math.ceil(all - due);
      due = Math.ceil(all);
      return;
    }
    send(socket);
  }
}, TICK);

function send(socket: Socket): void {
  const i = flooded.sent++;
  socket.write(
    `GET ${pathname}${search} HTTP/1.1\r\nHost: ${hostname}\r\nX-Forwarded-For: 10.${(i >> 14) & 63}.${(i >> 7) & 127}.${i & 127}\r\n\r\n`,
  );
}

function open(): void {
  const socket = connect(Number(port), hostname);
  let isAnnounced = false;
  let bytes: Buffer = Buffer.alloc(0);
  socket.setNoDelay(true);
  socket.on('connect', () => free.push(socket));
  socket.on('data', (chunk: Buffer) => {
    bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk]);
    const headEnd = bytes.indexOf('\r\n\r\n');
    if (headEnd < 0) return;
    const head = bytes.toString('latin1', 0, headEnd);
    const length = Number(/^content-length: (\d+)/im.exec(head)?.[1]);
    if (bytes.length < headEnd + 4 + length) return;
    answered(head.slice(9, 12), bytes.subarray(headEnd + 4));
    bytes = Buffer.alloc(0);
    isAnnounced = /^connection: close/im.test(head);
    if (!isAnnounced) free.unshift(socket);
  });
  socket.on('error', () => {});
  socket.on('close', () => {
    if (isOver) return;
    if (!isAnnounced) flooded.lost++;
    const index = free.indexOf(socket);
    if (index >= 0) free.splice(index, 1);
    setTimeout(open, 100);
  });
}

function answered(status: string, body: Buffer): void {
  flooded.statuses[status] = (flooded.statuses[status] ?? 0) + 1;
  if (status !== '200') return;
  right ??= Buffer.from(body);
  if (!right.equals(body)) flooded.wrong++;
}

function finish(): void {
  clearInterval(tick);
  const responses = () => Object.values(flooded.statuses).reduce((sum, count) => sum + count, 0);
  const last = performance.now() + LAST_ANSWERS;
  const wait = setInterval(() => {
    if (responses() + flooded.lost < flooded.sent && performance.now() < last) return;
    clearInterval(wait);
    isOver = true;
    console.log(JSON.stringify(flooded));
    process.exit();
  }, 50);
}
