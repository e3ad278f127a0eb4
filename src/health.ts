/** Health: `/healthz` says that the process lives, `/readyz` that it can answer requests. */
import { Router } from 'express';
import type { Reader } from './database/reads.js';
import type { PreparedStatements } from './preparedStatements.js';

/** The service is ready only if the database answers within this time. */
const READY_TIMEOUT_MS = 900;
const NO_ANSWER = 'the database does not answer';

/** The routes of health; a service that is stopping, or reads from a replica too far behind, is alive, but not ready. */
export function health(
  reader: Reader<PreparedStatements>,
  isStopping: () => boolean,
  tooFarBehind: () => string | undefined,
): Router {
  const router = Router();
  router.get('/healthz', (_request, response) => {
    response.json({ status: 'alive' });
  });
  router.get('/readyz', async (_request, response) => {
    const check = () => reader.read(({ checkSchema }) => checkSchema(), READY_TIMEOUT_MS).catch(() => NO_ANSWER);
    const reason = isStopping() ? 'stopping' : ((await check()) ?? tooFarBehind());
    response.status(reason ? 503 : 200).json({ status: reason ?? 'ready' });
  });
  return router;
}
