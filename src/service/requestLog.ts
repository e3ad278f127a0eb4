/** The log lines of requests: their outcome and, if they fail, the reason; never their parameters. */
import { randomUUID } from 'node:crypto';
import type { Request, Response } from 'express';
import { listBrandedPhoneNumbers as operation } from '../../generated/types/apis/index.js';
import { causeOf, withoutValues } from '../database/errors.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';

declare global {
  namespace Express {
    interface Request {
      id: string;
    }
    /** What handlers add to the request's log line. */
    interface Locals {
      /** The id of the client that the rate limit counted. */
      client?: string;
      /** The number of items in the page. */
      rows?: number;
    }
  }
}

/** The status in the log and the metrics if the client left before its response was sent, as nginx and HAProxy know it. */
const CLIENT_LEFT = 499;

/** Load balancers request these every few seconds; logging the successful requests would fill the log. */
const HEALTH_ROUTES = ['/healthz', '/readyz'];

/** Returns a function that gives a request its id, and logs and measures it when its response is closed. */
export function requestLog(log: Log, metrics: Metrics): (request: Request, response: Response) => void {
  return (request, response) => {
    const start = performance.now();
    setRequestId(request, response);
    response.once('close', () => {
      const status = response.writableFinished ? response.statusCode : CLIENT_LEFT;
      const milliseconds = performance.now() - start;
      // The route, since the path and the query may contain phone numbers; that of an unknown path is a pattern, or none.
      const { path } = request.route ?? {};
      const route: string | undefined = typeof path === 'string' ? path : undefined;
      metrics.observeResponse(route === operation.path ? 'list' : 'other', status, milliseconds / 1000);
      const isRoutine = status === 200 && HEALTH_ROUTES.includes(route ?? '');
      log[isRoutine ? 'debug' : 'info']({
        requestId: request.id,
        method: request.method,
        route,
        status,
        milliseconds: Math.round(milliseconds * 10) / 10,
        rows: response.locals.rows,
        client: response.locals.client,
      });
    });
  };
}

/** Returns a function that logs and measures a response sent without the application, and returns the id of its request. */
export function refusalLog(log: Log, metrics: Metrics): (status: number, reason?: string) => string {
  return (status, reason) => {
    const requestId = randomUUID();
    metrics.observeResponse('other', status, 0);
    log.info({ requestId, status, reason });
    return requestId;
  };
}

/** Returns a function that logs an unexpected error, to which the service responds with a 500. */
export function failureLog(log: Log): (error: unknown, request: Request) => void {
  return (error, request) => log.error({ err: withoutValues(causeOf(error)), requestId: request.id }, 'request failed');
}

/** Ids that are safe in a log line and contain no API key, which a caller may have put into the wrong header. */
const REQUEST_ID = /^(?!.*bpn_)[\w.:-]{1,128}$/;
/** Seven to 15 digits that could be a phone number, with or without separators. */
const PHONE_NUMBER = /(?<![A-Za-z\d])\d(?:[._:-]?\d){6,14}(?![A-Za-z\d])/;
/** A UUID, which is not a phone number even if some of its groups have only digits. */
const UUID = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i;

/** Gives the request the id in the caller's X-Request-Id if that is safe to log, else a new one. */
function setRequestId(request: Request, response: Response): void {
  const given = request.get('X-Request-Id') ?? '';
  const isSafe = REQUEST_ID.test(given) && (UUID.test(given) || !PHONE_NUMBER.test(given));
  request.id = isSafe ? given : randomUUID();
  response.setHeader('X-Request-Id', request.id);
}
