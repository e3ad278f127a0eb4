/**
 * Starts one PostgreSQL for the whole test run, in which each test file creates its databases. Its version is the installed
 * one, unless `make test-postgres` has set TEST_POSTGRES_VERSION. Everything temporary is in two folders, which are removed at
 * the end: the data of PostgreSQL servers, and the rest. They take up to 2 GB until then.
 */
import { chmod, mkdtemp, statfs } from 'node:fs/promises';
import { freemem } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { migrateDatabase } from '../../src/database/migrations.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import { connectTo } from './connection.js';
import { startPostgres } from './postgresServer.js';
import { makeFolder, removeFolder } from './temporaryFolder.js';

/** A file system in memory, which Linux has. */
const MEMORY = '/dev/shm';
const MIN_FREE_BYTES = 4e9;

/**
 * Makes the folder in which makeDataFolder makes those of servers: in memory, if there is room. For minutes after many files
 * were deleted, as a test run does at its end, ext4 takes long to create others: up to a seventh of the CPU time of the next
 * run.
 */
async function makeParentOfData(): Promise<string> {
  const space = await statfs(MEMORY).catch(() => ({ bavail: 0, bsize: 0 }));
  const isRoomy = Math.min(space.bavail * space.bsize, freemem()) > MIN_FREE_BYTES;
  return isRoomy ? mkdtemp(join(MEMORY, 'bpn-')) : makeFolder('data-');
}

export default async function setup(project: TestProject) {
  const version = process.env.TEST_POSTGRES_VERSION;
  const folder = await makeFolder('bpn-'); // short, since the paths of sockets must be
  await chmod(folder, 0o1777);
  process.env.TMPDIR = folder;
  const data = await makeParentOfData();
  await chmod(data, 0o755);
  process.env.TEST_POSTGRES_DATA = data;
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
    await Promise.all([folder, data].map(removeFolder));
  };
}
