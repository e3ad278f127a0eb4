/** How far a streaming replica lags behind its primary during an import, as a reader of the replica sees it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { connectTo } from '../test/support/connection.js';
import type { PostgresServer } from '../test/support/postgresServer.js';
import { writeFiles } from './commands.js';
import { runCommand } from './program.js';

/** Pause between two measurements of the lag. */
const INTERVAL_MS = 50;
/** Pause between two queries that look for the same write. */
const POLL_INTERVAL_MS = 5;

/** Imports numbers into the primary, and removes the replica. Returns the longest lag and the duration of the import. */
export async function measureReplica(
  primary: string,
  addReplica: () => Promise<PostgresServer>,
  numbers: number,
): Promise<{ lagMs: number; seconds: number }> {
  const { original } = await writeFiles(numbers);
  await runCommand(primary, ['migrate']);
  const writer = connectTo(primary);
  await writer`CREATE TABLE heartbeat AS SELECT 0 AS count`;
  const replica = await addReplica();
  const reader = connectTo(replica.url);
  try {
    let lagMs = 0;
    let isImporting = true;
    let seconds = 0;
    const start = performance.now();
    const importing = runCommand(primary, ['import', original]).finally(() => {
      isImporting = false;
      seconds = (performance.now() - start) / 1000;
    });
    let isLast: boolean;
    do {
      // The last measurement begins after the import.
      isLast = !isImporting;
      const [heartbeat] = await writer`UPDATE heartbeat SET count = count + 1 RETURNING count`;
      const written = performance.now();
      const find = () => reader`SELECT FROM heartbeat WHERE count = ${heartbeat?.count}`;
      while ((await find()).length === 0) await sleep(POLL_INTERVAL_MS);
      lagMs = Math.max(lagMs, performance.now() - written);
      await sleep(INTERVAL_MS);
    } while (!isLast);
    await importing;
    return { lagMs, seconds };
  } finally {
    await Promise.all([writer.end(), reader.end()]);
    await replica.remove();
  }
}
