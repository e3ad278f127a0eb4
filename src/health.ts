/** Health: `/healthz` says that the process lives, `/readyz` that it can answer requests. */
import { Router } from 'express';
import type { Reader } from './database/reads.js';

/** The service is ready only if the database answers within this time. */
const READY_TIMEOUT_MS = 900;
const NO_ANSWER = 'the database does not answer';

/**
 * The routes of health. A service that is stopping is alive, but not ready; nor is one whose `checkSchema` finds something
 * missing.
 */
export function health(
  reader: Reader,
  checkSchema: () => Promise<string | undefined>,
  isStopping: () => boolean,
): Router {
  const router = Router();
  router.get('/healthz', (_request, response) => {
    response.json({ status: 'alive' });
  });
  router.get('/readyz', async (_request, response) => {
    const check = () => reader.read(checkSchema, READY_TIMEOUT_MS).catch(() => NO_ANSWER);
    const reason = isStopping() ? 'stopping' : await check();
    response.status(reason ? 503 : 200).json({ status: reason ?? 'ready' });
  });
  return router;
}
