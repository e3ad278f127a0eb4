/**
 * One throwaway PostgreSQL for the whole test run; every test file takes migrated databases of its own from it.
 *
 * It is the embedded one, or the one of the version in TEST_POSTGRES_VERSION, which `make test-postgres` has fetched.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { migrateDatabase } from '../src/database/migrations.js';
import { openEmbeddedPostgres } from '../src/embeddedPostgres/embeddedPostgres.js';
import { migrationsFolder } from '../src/packageFolder.js';
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
  const { url, close } = version ? await startVersion() : await startEmbedded();
  const template = new URL(url);
  template.pathname = '/template_migrated';
  const admin = connectTo(url);
  // Nothing of it has to outlive a crash of the machine.
  await admin`ALTER SYSTEM SET fsync = off`;
  await admin`SELECT pg_reload_conf()`;
  await admin`CREATE DATABASE template_migrated`;
  const [running] = await admin`SHOW server_version`;
  await admin.end();
  if (version && !version.startsWith(`${running?.server_version}.`)) {
    throw new Error(`PostgreSQL ${version} is wanted, but ${running?.server_version} runs`);
  }
  await migrateDatabase(template.href, migrationsFolder);
  project.provide('postgresUrl', url);
  return close;
}

async function startEmbedded() {
  const folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-test-'));
  const server = await openEmbeddedPostgres(folder);
  return {
    url: server.url,
    async close() {
      await server.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function startVersion() {
  const server = await startPostgres({ max_connections: '100' });
  return { url: server.url, close: () => server.remove() };
}
