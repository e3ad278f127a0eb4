/** The log's lines for requests: how each was answered, or why it failed, and never what it asked for. */
import { randomUUID } from 'node:crypto';
import type { Request, Response } from 'express';
import { listBrandedPhoneNumbers as operation } from '../generated/types/apis/index.js';
import { causeOf, withoutValues } from './database/errors.js';
import type { Log } from './log.js';
import type { Metrics } from './metrics.js';

declare global {
  namespace Express {
    interface Request {
      id: string;
    }
    /** What a handler adds to the request's log line. */
    interface Locals {
      /** Who the rate limit counted. */
      client?: string;
      /** The items of the page. */
      rows?: number;
    }
  }
}

/** Load balancers ask for these all the time: where all is well, they would be most of the log. */
const HEALTH = ['/healthz', '/readyz'];

/** Creates what names a request, and logs and counts it once its response is closed. */
export function requestLog(log: Log, metrics: Metrics): (request: Request, response: Response) => void {
  return (request, response) => {
    const start = performance.now();
    nameRequest(request, response);
    response.once('close', () => {
      const { locals, statusCode: status } = response;
      const milliseconds = performance.now() - start;
      // Not the path or the query, which may name phone numbers. An unknown address has no route.
      const route: string | undefined = request.route?.path;
      metrics.answered(route === operation.path ? 'list' : 'other', status, milliseconds / 1000);
      const isRoutine = status === 200 && HEALTH.includes(route ?? '');
      log[isRoutine ? 'debug' : 'info']({
        requestId: request.id,
        method: request.method,
        route,
        status,
        milliseconds: Math.round(milliseconds * 10) / 10,
        rows: locals.rows,
        client: locals.client,
        // The client disconnected before its answer was sent.
        ...(response.writableFinished ? {} : { aborted: true }),
      });
    });
  };
}

/** Creates what logs a failure of the service itself, for which a request gets a 500. */
export function failureLog(log: Log): (error: unknown, request: Request) => void {
  return (error, request) => log.error({ err: withoutValues(causeOf(error)), requestId: request.id }, 'request failed');
}

/** Safe in a log line, and not an API key that someone put into the wrong header. */
const REQUEST_ID = /^(?!.*bpn_)[\w.:-]{1,128}$/;
/** Could be a phone number, in whatever groups its digits are written; an id with more digits can't be one. */
const PHONE_NUMBER = /(?<![A-Za-z\d])\d(?:[._:-]?\d){6,14}(?![A-Za-z\d])/;
/** A UUID: never a phone number, even though some of its groups may be all digits. */
const UUID = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i;

/** Uses the caller's X-Request-Id where it is safe, else creates one. */
function nameRequest(request: Request, response: Response): void {
  const given = request.get('X-Request-Id') ?? '';
  const isSafe = REQUEST_ID.test(given) && (UUID.test(given) || !PHONE_NUMBER.test(given));
  request.id = isSafe ? given : randomUUID();
  response.setHeader('X-Request-Id', request.id);
}
