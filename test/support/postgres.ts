/**
 * One throwaway PostgreSQL for the whole test run; every test file takes migrated databases of its own from it.
 *
 * It is of the version that is installed, or of the one in TEST_POSTGRES_VERSION, which `make test-postgres` has fetched.
 */
import type { TestProject } from 'vitest/node';
import { migrateDatabase } from '../../src/database/migrations.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import { connectTo } from './connection.js';
import { startPostgres } from './postgresServer.js';

declare module 'vitest' {
  interface ProvidedContext {
    postgresUrl: string;
    /** How many times as many random tries as in `make test`. */
    tries: number;
  }
}

export default async function setup(project: TestProject) {
  const version = process.env.TEST_POSTGRES_VERSION;
  const { url, remove } = await startPostgres({ max_connections: '100' });
  const template = new URL(url);
  template.pathname = '/template_migrated';
  const admin = connectTo(url);
  await admin`CREATE DATABASE template_migrated`;
  const [running] = await admin`SHOW server_version`;
  await admin.end();
  if (version && !version.startsWith(`${running?.server_version}.`)) {
    throw new Error(`PostgreSQL ${version} is wanted, but ${running?.server_version} runs`);
  }
  await migrateDatabase(template.href, migrationsFolder);
  project.provide('postgresUrl', url);
  return remove;
}
