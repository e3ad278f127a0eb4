/** An import that a signal ends changes nothing: the command itself, stopped while it takes lines. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { packageFolder } from '../../src/packageFolder.js';
import { until } from '../until.js';
import { database, databaseUrl, manyNumbers, ndjson, stored, useDatabase } from './importing.js';

useDatabase();

test.each(['SIGTERM', 'SIGKILL', 'SIGINT'] as const)('An import that %s ends changes nothing', async (signal) => {
  const child = spawn(process.execPath, [join(packageFolder, 'dist/src/main.js'), 'import', '-'], {
    env: { ...process.env, DATABASE_URL: databaseUrl },
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  const exit = once(child, 'exit');
  child.stdin.on('error', () => {});
  child.stdin.write(ndjson(manyNumbers(5000)));
  await until(
    async () => {
      const [row] = await database.$client`
      SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'COPY %'`;
      return row !== undefined;
    },
    'the lines are copied',
    30_000,
  );
  child.kill(signal);
  const [code, killed] = await exit;
  expect([code, killed]).toContainEqual(signal === 'SIGKILL' ? 'SIGKILL' : signal === 'SIGINT' ? 130 : 143);
  expect(await stored()).toEqual([]);
});
