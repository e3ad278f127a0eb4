/** Health: `/healthz` says that the process lives, `/readyz` that it can answer requests. */
import { sql } from 'drizzle-orm';
import { Router } from 'express';
import type { Database } from './database.js';
import { brandedPhoneNumbers } from './schema.js';

/** Milliseconds within which the database has to answer for the service to be ready. */
const PATIENCE = 900;

export function health(database: Database): Router {
  const router = Router();
  // Reading the table shows that the database is reachable and migrated.
  const read = database.select({ one: sql`1` }).from(brandedPhoneNumbers).limit(1).prepare('ready');
  router.get('/healthz', (_request, response) => {
    response.json({ status: 'alive' });
  });
  router.get('/readyz', async (_request, response) => {
    const isReady = await Promise.race([
      read.execute().then(
        () => true,
        () => false,
      ),
      new Promise<boolean>((resolve) => setTimeout(resolve, PATIENCE, false).unref()),
    ]);
    response.status(isReady ? 200 : 503).json({ status: isReady ? 'ready' : 'the database does not answer' });
  });
  return router;
}
