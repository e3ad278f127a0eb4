/** Health: `/healthz` reports that the process is alive, `/readyz` whether it can serve requests. */
import { type RequestHandler, Router } from 'express';
import type { Reader } from '../database/reads.js';
import type { Obstacle } from '../database/version.js';

/** The service is ready only if the database responds within this time. */
const READY_TIMEOUT_MS = 900;
const NO_RESPONSE: Obstacle = { reason: 'the database does not respond' };

interface Checks {
  reader: Reader;
  /** Returns what is missing in the database's schema, if anything. */
  checkSchema(): Promise<Obstacle | undefined>;
  /** Returns why the service is not ready, regardless of the database: it is starting or stopping. */
  obstacle(): Obstacle | undefined;
}

/**
 * Returns the routes `/healthz` and `/readyz`.
 * @param showsDetail whether `/readyz` includes PostgreSQL's messages: only for operators, since they name tables and users
 */
export function health({ reader, checkSchema, obstacle }: Checks, showsDetail: boolean): Router {
  const router = Router();
  router.get('/healthz', (_request, response) => {
    response.json({ status: 'alive' });
  });
  const ready: RequestHandler = async (_request, response) => {
    const found =
      obstacle() ?? (await reader.read(checkSchema, performance.now() + READY_TIMEOUT_MS).catch(() => NO_RESPONSE));
    const { reason = 'ready', detail } = found ?? {};
    response.status(found ? 503 : 200).json({ status: showsDetail && detail ? `${reason} (${detail})` : reason });
  };
  // OPTIONS, too, which HAProxy's `option httpchk` sends by default.
  router.route('/readyz').get(ready).options(ready);
  return router;
}
