/**
 * `flood.ts URL RATE CONNECTIONS SECONDS`: sends requests at a constant rate, even if the responses are slower, each from
 * another client address. Prints `FloodResults` as JSON. It runs in a separate process, so that it does not delay the
 * measurements of bench/overload.ts.
 */
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

export interface FloodResults {
  sent: number;
  /** Responses by status. */
  statuses: Record<string, number>;
  /** 200 responses that differ from the first one. */
  wrong: number;
  /** Connections that the server closed without announcing it by `Connection: close`. */
  lost: number;
}

/** Pause between two batches of requests. */
const BATCH_INTERVAL_MS = 5;
/** How long to wait for responses after the last request. */
const LAST_RESPONSES_MS = 6000;

const [url = '', rate = '', connections = '', seconds = ''] = process.argv.slice(2);
const { hostname, port, pathname, search } = new URL(url);
const results: FloodResults = { sent: 0, statuses: {}, wrong: 0, lost: 0 };
const idle: Socket[] = [];
let expected: Buffer | undefined;
let isOver = false;

// All connections are open before the first request: a busy server accepts one per turn of its event loop.
for (let i = 0; i < Number(connections); i++) {
  open();
  if (i % 50 === 49) await sleep(50);
}
while (idle.length < Number(connections)) await sleep(50);
const start = performance.now();
let scheduled = 0;
const timer = setInterval(() => {
  const elapsed = (performance.now() - start) / 1000;
  if (elapsed > Number(seconds)) return finish();
  // Requests that find all connections busy are skipped.
  const due = Math.ceil(elapsed * Number(rate));
  for (; scheduled < due && idle.length > 0; scheduled++) send(idle.pop() as Socket);
  scheduled = due;
}, BATCH_INTERVAL_MS);

function send(socket: Socket): void {
  const i = results.sent++;
  const client = `10.${(i >> 14) & 63}.${(i >> 7) & 127}.${i & 127}`;
  socket.write(`GET ${pathname}${search} HTTP/1.1\r\nHost: ${hostname}\r\nX-Forwarded-For: ${client}\r\n\r\n`);
}

function open(): void {
  const socket = connect(Number(port), hostname);
  let isClosing = false;
  let bytes: Buffer = Buffer.alloc(0);
  socket.setNoDelay(true);
  socket.on('connect', () => idle.push(socket));
  socket.on('data', (chunk: Buffer) => {
    bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk]);
    const headEnd = bytes.indexOf('\r\n\r\n');
    if (headEnd < 0) return;
    const head = bytes.toString('latin1', 0, headEnd);
    const length = Number(/^content-length: (\d+)/im.exec(head)?.[1]);
    if (bytes.length < headEnd + 4 + length) return;
    count(head.slice(9, 12), bytes.subarray(headEnd + 4));
    bytes = Buffer.alloc(0);
    isClosing = /^connection: close/im.test(head);
    if (!isClosing) idle.unshift(socket);
  });
  socket.on('error', () => {});
  socket.on('close', () => {
    if (isOver) return;
    if (!isClosing) results.lost++;
    const index = idle.indexOf(socket);
    if (index >= 0) idle.splice(index, 1);
    setTimeout(open, 100);
  });
}

function count(status: string, body: Buffer): void {
  results.statuses[status] = (results.statuses[status] ?? 0) + 1;
  if (status !== '200') return;
  expected ??= Buffer.from(body);
  if (!expected.equals(body)) results.wrong++;
}

async function finish(): Promise<void> {
  clearInterval(timer);
  const end = performance.now() + LAST_RESPONSES_MS;
  const received = () => Object.values(results.statuses).reduce((sum, count) => sum + count, 0);
  while (received() + results.lost < results.sent && performance.now() < end) await sleep(50);
  isOver = true;
  console.log(JSON.stringify(results));
  process.exit();
}
