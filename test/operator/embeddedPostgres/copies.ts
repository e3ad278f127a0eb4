/** Copies of an embedded PostgreSQL's folder, made while a process uses it. */
import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, onTestFinished } from 'vitest';
import { openEmbeddedPostgres } from '../../../src/operator/embeddedPostgres/embeddedPostgres.js';
import { fill, folder, home, user } from '../../support/embeddedPostgresFolder.js';

/** A name that makes the path of a folder too long for a socket. */
export const LONG = 'x'.repeat(110);

/** Opens a folder as a command does that runs in it. */
function openIn(at: string) {
  const cwd = process.cwd();
  onTestFinished(() => process.chdir(cwd));
  process.chdir(at);
  return openEmbeddedPostgres(at);
}

async function copyTo(copy: string, at: string): Promise<void> {
  await mkdir(join(copy, '..'), { recursive: true });
  await promisify(execFile)('cp', ['-a', at, copy]);
}

/** Fails unless processes share the folder with this name in the test's folder, but not with a copy made meanwhile. */
export async function expectNotSharedWithCopy(name: string): Promise<void> {
  const at = join(folder, name);
  await fill(at);
  const [first, second] = [await user({ at }), await user({ at })];
  expect(second.url).toBe(first.url);
  expect(await readdir(join(at, 'postgres'))).toContain('.s.PGSQL.1');
  const copy = join(home, 'copy', name);
  await copyTo(copy, at);
  await expect(openIn(copy)).rejects.toThrow(/"postmaster\.pid" already exists.*Stop .*, delete .*copy/s);
  for (const { close } of [first, second]) await close();
}

/** Fails unless the copy that replaces such a folder, which was moved while a process used it, is not joined. */
export async function expectNotJoinedAfterMove(name: string): Promise<void> {
  const [at, moved] = [join(folder, name), join(home, 'moved', name)];
  await fill(at);
  const first = await user({ at });
  await mkdir(join(moved, '..'), { recursive: true });
  await rename(at, moved);
  await copyTo(at, moved);
  await expect(openIn(at)).rejects.toThrow(/Stop/);
  await first.kill();
  process.kill(Number.parseInt(await readFile(join(moved, 'postgres/data/postmaster.pid'), 'utf8'), 10), 'SIGQUIT');
}
