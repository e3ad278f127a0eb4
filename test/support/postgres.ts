/**
 * Starts one PostgreSQL for the whole test run, in which each test file creates its databases. Its version is the installed
 * one, unless `make test-postgres` has set TEST_POSTGRES_VERSION. Everything temporary is in one folder, which is removed at the
 * end: databases and folders take up to 2 GB until then.
 */
import { chmod } from 'node:fs/promises';
import type { TestProject } from 'vitest/node';
import { migrateDatabase } from '../../src/database/migrations.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import { connectTo } from './connection.js';
import { startPostgres } from './postgresServer.js';
import { makeFolder, removeFolder } from './temporaryFolder.js';

export default async function setup(project: TestProject) {
  const version = process.env.TEST_POSTGRES_VERSION;
  const folder = await makeFolder('bpn-'); // short, since the paths of sockets must be
  await chmod(folder, 0o1777);
  process.env.TMPDIR = folder;
  const { url, stop } = await startPostgres({
    max_connections: '100',
    max_prepared_transactions: '2',
    // PostgreSQL divides it by the number of databases.
    autovacuum_naptime: '5min',
  });
  const template = new URL(url);
  template.pathname = '/template_migrated';
  const admin = connectTo(url);
  await admin`CREATE DATABASE template_migrated`;
  const [running] = await admin`SHOW server_version`;
  await admin.end();
  if (version && !version.startsWith(`${running?.server_version}.`)) {
    throw new Error(`PostgreSQL ${running?.server_version} runs instead of ${version}`);
  }
  await migrateDatabase(template.href, migrationsFolder);
  project.provide('postgresUrl', url);
  return async () => {
    await stop();
    await removeFolder(folder);
  };
}
