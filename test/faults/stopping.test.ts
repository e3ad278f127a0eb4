/** Stopping: nobody's request fails, and it is over in time. The command itself, as an operator runs it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { Agent, get } from 'node:http';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import postgres from 'postgres';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createDatabase } from '../database.js';

const PATH = '/v1/brandedPhoneNumbers';
const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

let databaseUrl: string;
let drop: () => Promise<void>;
const children: ChildProcess[] = [];
beforeAll(async () => {
  ({ url: databaseUrl, drop } = await createDatabase());
});
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});
afterAll(() => drop());

async function serve(environment: Record<string, string> = {}): Promise<{ child: ChildProcess; url: string }> {
  const child = spawn(process.execPath, ['--import', 'tsx', 'src/main.ts', 'serve'], {
    env: { ...process.env, DATABASE_URL: databaseUrl, PORT: '0', RATE_LIMIT_PER_SECOND: '0', ...environment },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  children.push(child);
  for await (const line of createInterface(child.stdout as NonNullable<typeof child.stdout>)) {
    const url = /listening on (http:\/\/[\d.:]+)/.exec(line)?.[1];
    if (!url) continue;
    child.stdout?.resume();
    return { child, url };
  }
  throw new Error('it did not start');
}

/** Sends a request; the answer's status and whether its connection ends. */
function ask(url: string, agent?: Agent): Promise<{ status: number | undefined; ends: boolean }> {
  return new Promise((resolve, reject) => {
    get(url, agent ? { agent } : {}, (response) => {
      response.resume();
      response.once('end', () =>
        resolve({ status: response.statusCode, ends: response.headers.connection === 'close' }),
      );
    }).once('error', reject);
  });
}

describe('SIGTERM', () => {
  it('makes it unready at once, fails none of the requests, and ends it with 0 within 10 seconds', async () => {
    const { child, url } = await serve();
    const agent = new Agent({ keepAlive: true, maxSockets: 20 });
    const answers: { status: number | undefined; ends: boolean }[] = [];
    // As a balancer does: what is told to end is not used again, and once it is unready nothing new is sent.
    let isReady = true;
    const load = Array.from({ length: 20 }, async () => {
      while (isReady) answers.push(await ask(`${url}${PATH}`, agent));
    });
    await pause(1000);
    const begin = performance.now();
    child.kill('SIGTERM');
    await pause(100);
    expect((await ask(`${url}/readyz`)).status).toBe(503);
    expect((await ask(`${url}/healthz`)).status).toBe(200);
    expect(await ask(`${url}${PATH}`, agent)).toEqual({ status: 200, ends: true });
    await pause(1000);
    isReady = false;
    await Promise.all(load);
    const [code] = child.exitCode === null ? await once(child, 'exit') : [child.exitCode];
    expect(code).toBe(0);
    expect(performance.now() - begin).toBeLessThan(10_000);
    expect([...new Set(answers.map(({ status }) => status))]).toEqual([200]);
    expect(answers.length).toBeGreaterThan(50);
  });

  it('waits for the request that is running', async () => {
    const { child, url } = await serve({ DRAIN_SECONDS: '0' });
    expect((await ask(`${url}${PATH}`)).status).toBe(200);
    const sql = postgres(databaseUrl, { max: 1 });
    const holder = await sql.reserve();
    await holder`BEGIN`;
    await holder`LOCK branded_phone_numbers IN ACCESS EXCLUSIVE MODE`;
    const running = ask(`${url}${PATH}`);
    await pause(300);
    child.kill('SIGTERM');
    await pause(1000);
    await holder`ROLLBACK`;
    holder.release();
    await sql.end();
    expect((await running).status).toBe(200);
    const [code] = child.exitCode === null ? await once(child, 'exit') : [child.exitCode];
    expect(code).toBe(0);
  });

  it('is not held up by idle connections, or by clients that never finish their request', async () => {
    const { child, url } = await serve({ DRAIN_SECONDS: '0' });
    const { hostname, port } = new URL(url);
    const idle = connect(Number(port), hostname).on('error', () => {});
    const slow = connect(Number(port), hostname).on('error', () => {});
    slow.write('GET / HTTP/1.1\r\nHost: ');
    await pause(300);
    const begin = performance.now();
    child.kill('SIGTERM');
    const [code] = await once(child, 'exit');
    expect(code).toBe(0);
    expect(performance.now() - begin).toBeLessThan(10_000);
    idle.destroy();
    slow.destroy();
  });

  it('ends it in time when the database hangs', async () => {
    const { openToxicProxy } = await import('./toxicProxy.js');
    const proxy = await openToxicProxy(Number(new URL(databaseUrl).port));
    const { child, url } = await serve({ DATABASE_URL: proxy.through(databaseUrl), RATE_LIMIT_PER_SECOND: '10' });
    expect((await ask(`${url}${PATH}`)).status).toBe(200);
    proxy.behave('silent');
    const running = ask(`${url}${PATH}`);
    const begin = performance.now();
    child.kill('SIGTERM');
    expect((await running).status).toBe(503);
    const [code] = child.exitCode === null ? await once(child, 'exit') : [child.exitCode];
    expect(code).toBe(0);
    expect(performance.now() - begin).toBeLessThan(10_000);
    await proxy.close();
  });
});

describe('an import', () => {
  it.each(['SIGTERM', 'SIGKILL', 'SIGINT'] as const)('interrupted by %s changes nothing', async (signal) => {
    const child = spawn(process.execPath, ['--import', 'tsx', 'src/main.ts', 'import', '-'], {
      env: { ...process.env, DATABASE_URL: databaseUrl },
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    children.push(child);
    child.stdin?.on('error', () => {});
    for (let i = 0; i < 5000; i++) {
      const number = {
        phoneNumber: `+1415${String(i).padStart(7, '0')}`,
        businessProfile: {
          id: '6513270e-269e-4d37-b2a7-4de452e6b438',
          businessName: 'Circle Bank',
          status: 'approved',
        },
        internalName: null,
        brandingNameShort: null,
        brandingNameLong: null,
        reportingGroup: null,
        carrierStatuses: [],
      };
      child.stdin?.write(`${JSON.stringify(number)}\n`);
    }
    await pause(3500);
    expect(child.exitCode).toBe(null);
    child.kill(signal);
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    const sql = postgres(databaseUrl, { max: 1 });
    const [row] = await sql`SELECT count(*)::int AS count FROM branded_phone_numbers`;
    await sql.end();
    expect(row?.count).toBe(0);
  });
});
