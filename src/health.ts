/** Health: `/healthz` says that the process lives, `/readyz` that it can answer requests. */
import { sql } from 'drizzle-orm';
import { Router } from 'express';
import type { Database } from './database.js';
import type { Reader } from './reader.js';
import { brandedPhoneNumbers } from './schema.js';

/** Milliseconds within which the database has to answer for the service to be ready. */
const PATIENCE = 900;

/** The routes of health; a service that is stopping is alive, but not ready. */
export function health(database: Database, reader: Reader, isStopping: () => boolean): Router {
  const router = Router();
  // Reading the table shows that the database is reachable and migrated.
  const read = database.select({ one: sql`1` }).from(brandedPhoneNumbers).limit(1).prepare('ready');
  router.get('/healthz', (_request, response) => {
    response.json({ status: 'alive' });
  });
  router.get('/readyz', async (_request, response) => {
    const trouble = isStopping() ? 'stopping' : await reader.read(() => read.execute(), PATIENCE).then(ready, notReady);
    response.status(trouble ? 503 : 200).json({ status: trouble ?? 'ready' });
  });
  return router;
}

function ready(): undefined {}

function notReady(): string {
  return 'the database does not answer';
}
