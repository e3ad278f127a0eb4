/** One throwaway PostgreSQL for the whole test run; every test file takes migrated databases of its own from it. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import type { TestProject } from 'vitest/node';
import { migrateDatabase } from '../src/database.js';
import { openEmbeddedPostgres } from '../src/embeddedPostgres.js';

declare module 'vitest' {
  interface ProvidedContext {
    postgresUrl: string;
  }
}

export default async function setup(project: TestProject) {
  const folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-test-'));
  const server = await openEmbeddedPostgres(folder);
  const template = new URL(server.url);
  template.pathname = '/template_migrated';
  const admin = postgres(server.url, { max: 1 });
  await admin`CREATE DATABASE template_migrated`;
  await migrateDatabase(template.href);
  await admin.end();
  project.provide('postgresUrl', server.url);
  return async () => {
    await server.close();
    await rm(folder, { recursive: true, force: true });
  };
}
