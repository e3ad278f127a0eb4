/** Health: `/healthz` says that the process lives, `/readyz` that it can answer requests. */
import { Router } from 'express';
import type { Database } from './database/connect.js';
import type { Reader } from './database/reads.js';
import { prepareSchemaCheck } from './database/version.js';
import { migrationsFolder } from './packageFolder.js';

/** The service is ready only if the database answers within this time. */
const READY_TIMEOUT_MS = 900;

/** The routes of health; a service that is stopping, or reads from a replica in trouble, is alive, but not ready. */
export function health(
  database: Database,
  reader: Reader,
  isStopping: () => boolean,
  replicaTrouble: () => string | undefined,
): Router {
  const router = Router();
  const checkSchema = prepareSchemaCheck(database, migrationsFolder);
  router.get('/healthz', (_request, response) => {
    response.json({ status: 'alive' });
  });
  router.get('/readyz', async (_request, response) => {
    const trouble = isStopping()
      ? 'stopping'
      : ((await reader.read(checkSchema, READY_TIMEOUT_MS).catch(noAnswer)) ?? replicaTrouble());
    response.status(trouble ? 503 : 200).json({ status: trouble ?? 'ready' });
  });
  return router;
}

function noAnswer(): string {
  return 'the database does not answer';
}
