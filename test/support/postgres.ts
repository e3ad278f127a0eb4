/**
 * Starts one PostgreSQL for the whole test run, in which each test file creates its databases. Its version is the installed
 * one, unless `make test-postgres` has set TEST_POSTGRES_VERSION.
 */
import type { TestProject } from 'vitest/node';
import { migrateDatabase } from '../../src/database/migrations.js';
import { migrationsFolder } from '../../src/packageFolder.js';
import { connectTo } from './connection.js';
import { startPostgres } from './postgresServer.js';

export default async function setup(project: TestProject) {
  const version = process.env.TEST_POSTGRES_VERSION;
  const { url, remove } = await startPostgres({ max_connections: '100', max_prepared_transactions: '2' });
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
  return remove;
}
