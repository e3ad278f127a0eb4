/** Temporary folders. Those of a test run are in one folder, which is removed at its end (postgres.ts). */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll } from 'vitest';

/** Makes a new folder, with a name that begins with `prefix`. */
export const makeFolder = (prefix: string) => mkdtemp(join(tmpdir(), prefix));

/** The same, for the data of a server: in memory, if there is room (postgres.ts). */
export const makeDataFolder = (prefix: string) => mkdtemp(join(process.env.TEST_POSTGRES_DATA ?? tmpdir(), prefix));

/**
 * Removes a folder, even if a process that was just killed is still writing there. A test leaves it to the end of the run,
 * since deleted files slow down the next ones (postgres.ts).
 */
export async function removeFolder(folder: string): Promise<void> {
  if (process.env.VITEST_WORKER_ID) return;
  await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
}

/** Makes a folder for all tests of a file or a suite; `path` is set before its first test. */
export function useTemporaryFolder(prefix: string): { path: string } {
  const folder = { path: '' };
  beforeAll(async () => {
    folder.path = await makeFolder(prefix);
  });
  return folder;
}
