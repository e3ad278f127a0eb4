/** How far a streaming replica lags behind while numbers are imported, as its readers see it. */
import { execFile } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { connectTo } from '../test/support/connection.js';
import type { PostgresServer } from '../test/support/postgresServer.js';
import { writeFiles } from './commands.js';

const run = promisify(execFile);
const MAIN = 'dist/src/main.js';
/** Between two writes to the primary that are then looked for in the replica, and between two looks. */
const INTERVAL_MS = 50;
const LOOK_INTERVAL_MS = 5;

/** Imports numbers into the primary, and removes the replica. Returns its longest lag, and the import's time. */
export async function measureReplica(
  primary: string,
  replicate: () => Promise<PostgresServer>,
  numbers: number,
): Promise<{ lagMs: number; seconds: number }> {
  const { first } = await writeFiles(numbers);
  const env = { ...process.env, DATABASE_URL: primary };
  await run(process.execPath, [MAIN, 'migrate'], { env });
  const writing = connectTo(primary);
  await writing`CREATE TABLE beat AS SELECT 0 AS count`;
  const replica = await replicate();
  const reading = connectTo(replica.url);
  let [lagMs, seconds] = [0, 0];
  try {
    const start = performance.now();
    const importing = run(process.execPath, [MAIN, 'import', first], { env }).finally(
      () => (seconds = (performance.now() - start) / 1000),
    );
    for (let isLast = false; !isLast; await sleep(INTERVAL_MS)) {
      isLast = seconds > 0;
      const [beat] = await writing`UPDATE beat SET count = count + 1 RETURNING count`;
      const written = performance.now();
      while ((await reading`SELECT FROM beat WHERE count = ${beat?.count}`).length === 0) await sleep(LOOK_INTERVAL_MS);
      lagMs = Math.max(lagMs, performance.now() - written);
    }
    await importing;
    return { lagMs, seconds };
  } finally {
    await Promise.all([writing.end(), reading.end()]);
    await replica.remove();
  }
}
