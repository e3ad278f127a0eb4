/** Health: `/healthz` reports that the process is alive, `/readyz` whether it can serve requests. */
import { type RequestHandler, Router } from 'express';
import { contract } from '../contract.js';
import { reasonOf } from '../database/errors.js';
import { type Obstacle, prepareSchemaCheck } from '../database/migrations.js';
import type { Reader } from '../database/reads.js';
import { migrationsFolder } from '../packageFolder.js';

/** The service is ready only if the database responds within this time. */
const READY_TIMEOUT_MS = 900;
/** PostgreSQL cancels the check's statement after this time, so that its reason arrives before READY_TIMEOUT_MS. */
export const READY_STATEMENT_TIMEOUT_MS = 700;

interface Checks {
  reader: Reader;
  /** Used while `reader` has no connection. */
  fallback: Reader;
  /** Returns why the service is not ready, regardless of the database: it is starting or stopping. */
  obstacle(): Obstacle | undefined;
}

/** Returns the reason why the service is not ready, if there is one. */
export type CheckReadiness = () => Promise<Obstacle | undefined>;

/** Prepares the check of `/readyz`. One check at a time runs, whose result is used for all requests that arrive meanwhile. */
export function prepareReadiness({ reader, fallback, obstacle }: Checks): CheckReadiness {
  const checkSchema = prepareSchemaCheck(migrationsFolder);
  let running: Promise<Obstacle | undefined> | undefined;
  async function check(): Promise<Obstacle | undefined> {
    const deadline = performance.now() + READY_TIMEOUT_MS;
    const checkOn = (chosen: Reader) => chosen.read(checkSchema, deadline, { isFirst: true });
    try {
      if (reader.isConnected) return await checkOn(reader);
      const checks = [checkOn(reader), checkOn(fallback)];
      // If both fail, with the error of the first, since that of Promise.any gives no reason.
      return await Promise.any(checks).catch(() => checks[0]);
    } catch (error) {
      return { reason: 'the database does not respond', detail: reasonOf(error) };
    } finally {
      running = undefined;
    }
  }
  const joinCheck = () => (running ??= check());
  return async () => obstacle() ?? joinCheck();
}

/** Returns `/healthz` and `/readyz`; `forOperators` adds the version and PostgreSQL's messages, which name tables and users. */
export function health(checkReadiness: CheckReadiness, forOperators: boolean): Router {
  const router = Router();
  const alive = { status: 'alive', ...(forOperators && { version: contract.info.version }) };
  router.get('/healthz', (_request, response) => {
    response.json(alive);
  });
  const ready: RequestHandler = async (_request, response) => {
    const obstacle = await checkReadiness();
    const { reason = 'ready', detail } = obstacle ?? {};
    response.status(obstacle ? 503 : 200).json({ status: forOperators && detail ? `${reason} (${detail})` : reason });
  };
  // OPTIONS, too, which HAProxy's `option httpchk` sends by default.
  router.route('/readyz').get(ready).options(ready);
  return router;
}
