/** A folder for an embedded PostgreSQL, and processes that open it. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, beforeEach, expect } from 'vitest';
import manifest from '#package.json' with { type: 'json' };
import { openEmbeddedPostgres } from '../../src/operator/embeddedPostgres/embeddedPostgres.js';
import { packageFolder } from '../../src/packageFolder.js';
import { closeDatabase, openDatabase } from './database.js';
import { makeDataFolder } from './temporaryFolder.js';
import { until } from './until.js';

const children: ChildProcess[] = [];
/** Only this user may enter it: mkdtemp sets 0700. */
export let home: string;
export let folder: string;

/** Makes an empty folder for each test of a file, and ends the processes that the test leaves in it. */
export function useFolder(): void {
  beforeEach(async () => {
    home = await makeDataFolder('embedded-postgres-');
    folder = join(home, `"$(check)" 'out`, '.data');
  });
  afterEach(async () => {
    for (const child of children.splice(0)) if (child.exitCode === null) child.kill('SIGKILL');
    const pid = await postmasterPid();
    if (pid && pid !== process.pid && isAlive(pid)) process.kill(pid, 'SIGQUIT');
    await until(async () => !pid || !isAlive(pid) || pid === process.pid);
  });
}

/** Puts the data of an embedded PostgreSQL into a folder, by a copy, which takes a fifth of the CPU time of initdb. */
export async function fill(at = folder): Promise<void> {
  const prepared = await preparedFolder();
  await mkdir(dirname(at), { recursive: true });
  execFileSync('cp', ['-a', prepared, at]);
}

/** Returns the folder in `.cache/` of a stopped embedded PostgreSQL without tables, as the sources make it. Nothing changes it. */
async function preparedFolder(): Promise<string> {
  const sources = join(packageFolder, 'src/operator/embeddedPostgres');
  const hash = createHash('sha256').update(JSON.stringify([manifest.optionalDependencies, process.getuid?.()]));
  for (const name of readdirSync(sources)) hash.update(readFileSync(join(sources, name)));
  const prepared = join(packageFolder, '.cache', 'embeddedPostgres', hash.digest('hex').slice(0, 16));
  if (existsSync(prepared)) return prepared;
  await mkdir(dirname(prepared), { recursive: true });
  const draft = await mkdtemp(`${prepared}.`);
  await (await openEmbeddedPostgres(draft)).close();
  // Another process may have been faster.
  await rename(draft, prepared).catch(() => rm(draft, { recursive: true }));
  return prepared;
}

interface Spawning {
  command?: string[];
  ownGroup?: boolean;
  /** The folder that the process opens, and in which it runs. */
  at?: string;
}

/** Starts a process that opens the folder with the built package; returns it once it has opened the folder. */
export async function user(spawning: Spawning = {}) {
  const child = spawnUser(spawning);
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
  let errors = '';
  child.stderr?.on('data', (chunk) => (errors += chunk));
  const ended = once(child, 'close').then(() => {
    throw new Error(errors);
  });
  ended.catch(() => {});
  const [url] = (await Promise.race([once(lines, 'line'), ended])) as [string];
  return {
    child,
    url,
    async close() {
      child.stdin?.end();
      const [code] = await once(child, 'exit');
      expect(code, errors).toBe(0);
    },
    async kill() {
      child.kill('SIGKILL');
      await once(child, 'exit');
    },
  };
}

export function spawnUser({ command = [], ownGroup = false, at }: Spawning = {}): ChildProcess {
  const program = `
    const [{ openEmbeddedPostgres }, { withConnection }] =
      await Promise.all([import(${resolved('../../dist/src/operator/embeddedPostgres/embeddedPostgres.js')}), import(${resolved('../../dist/src/database/connection.js')})]);
    const { url, close } = await openEmbeddedPostgres(${JSON.stringify(at ?? folder)});
    process.stdin.on('end', close).resume();
    process.once('SIGINT', async () => {
      await new Promise((resolve) => setTimeout(resolve, 300));
      await withConnection(url, (connection) => connection.open());
      await close();
      process.exit();
    });
    console.log(url);`;
  const [file = '', ...args] = [...command, process.execPath, '--input-type=module', '--eval', program];
  const env = { ...process.env, HOME: home, TMPDIR: tmpdir() };
  const child = spawn(file, args, { cwd: at ?? '/', env, detached: ownGroup, stdio: 'pipe' });
  children.push(child);
  return child;
}

function resolved(path: string): string {
  return JSON.stringify(new URL(path, import.meta.url).href);
}

export async function query(url: string, text: string): Promise<Record<string, unknown>[]> {
  const database = openDatabase(url);
  try {
    return [...(await database.$client.unsafe(text))];
  } finally {
    await closeDatabase(database, 1);
  }
}

export function inside(name: string): string {
  return join(folder, 'postgres', name);
}

export async function postmasterPid(): Promise<number | undefined> {
  const content = await readFile(inside('data/postmaster.pid'), 'utf8').catch(() => '');
  return Number(content.split('\n')[0]) || undefined;
}

export function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
