/** Health: `/healthz` says that the process lives, `/readyz` that it can answer requests. */
import { Router } from 'express';
import type { Reader } from './database/reads.js';
import type { Obstacle } from './database/version.js';

/** The service is ready only if the database answers within this time. */
const READY_TIMEOUT_MS = 900;
const NO_ANSWER: Obstacle = { reason: 'the database does not answer' };

interface Checks {
  reader: Reader;
  checkSchema(): Promise<Obstacle | undefined>;
  /** Returns why the service is not ready, whatever the database says: it is starting or stopping. */
  unready(): Obstacle | undefined;
}

/**
 * Returns the routes of health. A service that is starting or stopping is alive, but not ready; nor is one if
 * `checkSchema` finds something missing.
 * @param showsDetail for operators only: PostgreSQL's messages name tables, addresses and users
 */
export function health({ reader, checkSchema, unready }: Checks, showsDetail: boolean): Router {
  const router = Router();
  router.get('/healthz', (_request, response) => {
    response.json({ status: 'alive' });
  });
  router.get('/readyz', async (_request, response) => {
    const obstacle = unready() ?? (await reader.read(checkSchema, READY_TIMEOUT_MS).catch(() => NO_ANSWER));
    const { reason = 'ready', detail } = obstacle ?? {};
    response.status(obstacle ? 503 : 200).json({ status: showsDetail && detail ? `${reason} (${detail})` : reason });
  });
  return router;
}
