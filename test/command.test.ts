/** The command as it is built and run: real processes, on an embedded PostgreSQL of their own. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { BrandedPhoneNumberPage } from '../generated/types/models/index.js';
import { packageFolder } from '../src/contract.js';
import { createDatabase } from './database.js';
import { entryWith, numberWith } from './numbers.js';

let folder: string;
const running = new Set<ChildProcess>();

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-command-'));
});
afterAll(async () => {
  for (const child of running) child.kill('SIGKILL');
  await rm(folder, { recursive: true, force: true });
});

interface Finished {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** Starts the command in a folder of its own, where its data will lie. */
function start(
  args: string[],
  environment: Record<string, string> = {},
  input = '',
  cwd = folder,
): { child: ChildProcess; finished: Promise<Finished> } {
  const child = spawn(process.execPath, [join(packageFolder, 'dist/src/main.js'), ...args], {
    cwd,
    env: { PATH: process.env.PATH ?? '', HOME: folder, LOG_LEVEL: 'warn', ...environment },
  });
  running.add(child);
  const out = { stdout: '', stderr: '' };
  child.stdout.on('data', (data) => (out.stdout += data));
  child.stderr.on('data', (data) => (out.stderr += data));
  child.stdin.end(input);
  const finished = once(child, 'close').then(([code]) => {
    running.delete(child);
    return { code, ...out };
  });
  return { child, finished };
}

const run = (args: string[], environment?: Record<string, string>, input?: string) =>
  start(args, environment, input).finished;

async function freePort(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  return String(port);
}

async function untilReady(url: string): Promise<void> {
  for (const end = Date.now() + 20_000; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 50))) {
    const response = await fetch(`${url}/readyz`).catch(() => undefined);
    if (response?.ok) return;
  }
  throw new Error(`${url} did not become ready`);
}

const linesOf = (list: object[]) => list.map((item) => `${JSON.stringify(item)}\n`).join('');
const list = Array.from({ length: 300 }, (_, i) =>
  numberWith({
    phoneNumber: `+1415${1000 + i}`,
    carrierStatuses: [entryWith('AT&T', 'brandedCallerId', i % 2 ? 'approved.optIn' : 'pending.optIn')],
  }),
);

describe('without any setting', () => {
  it('serves from an embedded PostgreSQL, imports while it serves, and stops in order', async () => {
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const { child, finished } = start(['serve', '--demo'], { PORT: port, RATE_LIMIT_PER_SECOND: '0' });
    await untilReady(url);
    await writeFile(join(folder, 'numbers.ndjson'), linesOf(list));
    const imported = await run(['import', 'numbers.ndjson']);
    expect(imported).toEqual({ code: 0, stdout: 'imported 300 numbers, 300 carrier statuses\n', stderr: '' });
    const phoneNumbers: string[] = [];
    for (let cursor: string | null = ''; cursor !== null; ) {
      const search = `status=submitted+for+review&reportingGroup=Control&internalName=Main+Line&size=100${cursor && `&nextCursor=${cursor}`}`;
      const page = (await (await fetch(`${url}/v1/brandedPhoneNumbers?${search}`)).json()) as BrandedPhoneNumberPage;
      phoneNumbers.push(...page.items.map(({ phoneNumber }) => phoneNumber));
      cursor = page.nextCursor;
    }
    expect(phoneNumbers).toEqual(
      expect.arrayContaining(list.filter((_, i) => i % 2 === 0).map(({ phoneNumber }) => phoneNumber)),
    );
    child.kill('SIGTERM');
    expect((await finished).code).toBe(0);
  });

  it('serves the same data after SIGKILL', async () => {
    const port = await freePort();
    const first = start(['serve'], { PORT: port });
    await untilReady(`http://127.0.0.1:${port}`);
    first.child.kill('SIGKILL');
    await first.finished;
    const second = start(['serve'], { PORT: port });
    await untilReady(`http://127.0.0.1:${port}`);
    const page = (await (
      await fetch(`http://127.0.0.1:${port}/v1/brandedPhoneNumbers?phoneNumber=%2B14151000`)
    ).json()) as BrandedPhoneNumberPage;
    expect(page.items).toHaveLength(1);
    second.child.kill('SIGINT');
    expect((await second.finished).code).toBe(0);
  });
});

describe('import', () => {
  let databaseUrl: string;
  let drop: () => Promise<void>;
  beforeAll(async () => {
    ({ url: databaseUrl, drop } = await createDatabase());
  });
  afterAll(() => drop());
  const DATABASE = () => ({ DATABASE_URL: databaseUrl });

  it('reads standard input', async () => {
    const { code, stdout } = await run(['import', '-'], DATABASE(), linesOf(list.slice(0, 2)));
    expect([code, stdout]).toEqual([0, 'imported 2 numbers, 2 carrier statuses\n']);
  });

  it('tells every bad line, by its file where there are several, and exits with 1', async () => {
    await writeFile(join(folder, 'a.ndjson'), linesOf(list.slice(0, 3)));
    await writeFile(join(folder, 'b.ndjson'), `${linesOf(list.slice(4, 5))}{}\nnonsense\n`);
    const { code, stdout, stderr } = await run(['import', 'a.ndjson', 'b.ndjson'], DATABASE());
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/b\.ndjson line 2: .+\nb\.ndjson line 3: .+JSON/);
  });

  it('takes several files as one import', async () => {
    await writeFile(join(folder, 'b.ndjson'), linesOf(list.slice(4, 6)));
    const { code, stdout } = await run(['import', 'a.ndjson', 'b.ndjson'], DATABASE());
    expect([code, stdout]).toEqual([0, 'imported 5 numbers, 5 carrier statuses\n']);
  });

  it('says which file it cannot read', async () => {
    const { code, stderr } = await run(['import', 'missing.ndjson'], DATABASE());
    expect([code, stderr]).toEqual([1, expect.stringContaining('missing.ndjson')]);
  });
});

describe('a start that goes wrong', () => {
  it.each([
    ['a wrong setting', { PORT: 'http' }, /^PORT must be a whole number from 0 to 65535\n$/],
    ['an open host without a choice of AUTH', { HOST: '0.0.0.0' }, /^AUTH must be chosen/],
    ['a database that is not there', { DATABASE_URL: 'postgres://127.0.0.1:1/none' }, /127\.0\.0\.1:1/],
  ])('by %s says so in a line', async (_name, environment, said) => {
    const { code, stderr } = await run(['serve'], environment);
    expect(code).toBe(1);
    expect(stderr).toMatch(said);
    expect(stderr).not.toContain('    at ');
  });

  it('by an embedded PostgreSQL that can have no folder says so in a line', async () => {
    const other = await mkdtemp(join(folder, 'without-'));
    await writeFile(join(other, '.data'), 'a file in the way');
    const { code, stderr } = await start(['serve'], {}, '', other).finished;
    expect(code).toBe(1);
    expect(stderr).toMatch(/^The embedded PostgreSQL cannot use .*\n$/);
  });

  it('by a port that is taken says so', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const { url, drop } = await createDatabase();
    const { code, stderr } = await run(['serve'], { PORT: String(port), DATABASE_URL: url });
    server.close();
    await drop();
    expect([code, stderr]).toEqual([1, expect.stringMatching(new RegExp(`PORT ${port} .*is taken`))]);
  });
});

describe('migrate', () => {
  it('may be run by several at once on an empty database', async () => {
    const { url, drop } = await createDatabase({ isEmpty: true });
    const results = await Promise.all([1, 2, 3].map(() => run(['migrate'], { DATABASE_URL: url })));
    await drop();
    expect(results.map(({ code, stdout }) => [code, stdout])).toEqual(
      Array(3).fill([0, 'the database is up to date\n']),
    );
  });
});
