/** Random requests of every kind, with the responses that they should get. */
import type { IncomingHttpHeaders } from 'node:http';
import fc from 'fast-check';
import { expect } from 'vitest';
import type { BrandedPhoneNumber } from '../../generated/types/models/index.js';
import { queryOver } from '../support/queries.js';
import { find, searchOf } from '../support/reference.js';

export const PATH = '/v1/brandedPhoneNumbers';

/** A client of the service, as the limit counts it. */
export interface Caller {
  /** Its id in the log. */
  id: string;
  headers: Record<string, string>;
  /** The business profiles that it may see; undefined for all. */
  profiles?: string[];
  /** Whether it sends at most the limit's number of requests in any second. */
  keepsLimit: boolean;
}

export interface Request {
  caller: Caller;
  method: string;
  path: string;
  headers: Record<string, string>;
  /** The statuses that it may get while nothing fails and the limit has room. */
  statuses: number[];
  /** Whether it is counted for its caller, unless it is refused. */
  isCounted: boolean;
  needsDatabase: boolean;
  isAborted: boolean;
  /** Fails unless a response with one of `statuses` is right. */
  check(response: Received): void;
}

export interface Received {
  id: string;
  request: Request;
  instance: number;
  sentAt: number;
  /** 0 until the response has ended. */
  cameAt: number;
  /** Undefined if the request was aborted or the connection broke. */
  status: number | undefined;
  headers: IncomingHttpHeaders;
  text: string;
}

/** Random numbers below a limit, and random elements. */
export function createDice(seed: number) {
  const rolls = fc.sample(fc.nat({ max: 999_999 }), { seed, numRuns: 20_000 });
  let next = 0;
  const below = (limit: number) => (rolls[next++ % rolls.length] as number) % limit;
  return { below, oneOf: <T>(values: readonly T[]) => values[below(values.length)] as T };
}

/** Creates functions that return random requests of a caller to a service with these numbers. */
export function createRequests(
  numbers: BrandedPhoneNumber[],
  seed: number,
  { below, oneOf }: ReturnType<typeof createDice>,
) {
  const queries = fc.sample(queryOver(numbers), { seed, numRuns: 500 });
  /** Where a walk of each caller continues: its filters, the numbers that are left, and the cursor. */
  const walks = new Map<Caller, { search: string; left: BrandedPhoneNumber[]; cursor: string | null }>();
  const listed = (caller: Caller, search = '') => ({
    caller,
    method: 'GET',
    path: `${PATH}${search && '?'}${search}`,
    headers: caller.headers,
    isCounted: true,
    needsDatabase: true,
    isAborted: false,
    check() {},
  });

  function page(caller: Caller): Request {
    const walk = walks.get(caller);
    const isNext = walk !== undefined && walk.cursor !== null && below(2) === 0;
    const query = oneOf(queries);
    const size = 1 + below(30);
    const isVisible = ({ businessProfile: { id } }: BrandedPhoneNumber) => caller.profiles?.includes(id) ?? true;
    const search = isNext ? walk.search : searchOf(query);
    const left = isNext ? walk.left : find(numbers.filter(isVisible), query);
    const cursor = isNext ? [`nextCursor=${walk.cursor}`] : [];
    return {
      ...listed(caller, [search, `size=${size}`, ...cursor].filter(Boolean).join('&')),
      statuses: [200],
      check({ text }) {
        const { items, nextCursor } = JSON.parse(text);
        expect(items).toEqual(left.slice(0, size));
        expect(nextCursor === null).toBe(left.length <= size);
        walks.set(caller, { search, left: left.slice(size), cursor: nextCursor });
      },
    };
  }

  const isEmpty = ({ text }: Received) => expect(text).toBe('');
  const kinds: ((caller: Caller) => Request)[] = [
    page,
    page,
    page,
    (caller) => ({ ...page(caller), method: 'HEAD', check: isEmpty }),
    (caller) => {
      const headers = { ...caller.headers, 'If-None-Match': '*' };
      return { ...page(caller), headers, statuses: [304], check: isEmpty };
    },
    (caller) => {
      const faults = ['size=0', 'carier=x', 'size=1&size=2', 'nextCursor=x', 'status=open&size=x', 'phoneNumber=+1'];
      return { ...listed(caller, oneOf(faults)), statuses: [400] };
    },
    (caller) => {
      const check = ({ headers }: Received) => expect(headers.allow).toBe('GET, HEAD');
      return { ...listed(caller), method: 'POST', statuses: [405], check };
    },
  ];
  return {
    page,
    /** Returns a request of any kind with the caller's key. */
    any: (caller: Caller) => oneOf(kinds)(caller),
    /** Returns a request that is abandoned while it is processed. */
    aborted: (caller: Caller) => ({ ...page(caller), isAborted: true, check() {} }),
    /** Returns a request without a valid key. */
    unidentified(caller: Caller): Request {
      const needsDatabase = below(2) === 0;
      const unknown = { Authorization: `Bearer bpn_${'a'.repeat(38)}${10_000 + below(90_000)}` };
      const authorization = needsDatabase ? unknown : oneOf([{}, { Authorization: 'Basic YTpi' }]);
      return { ...listed(caller), headers: { ...caller.headers, ...authorization }, statuses: [401], needsDatabase };
    },
    /** Returns a request to another path, which is not counted. */
    uncounted(caller: Caller): Request {
      const [path, status, needsDatabase] = oneOf<[string, number, boolean]>([
        ['/healthz', 200, false],
        ['/readyz', 200, true],
        ['/nope', 404, false],
        [`${PATH}/+14155550123`, 404, false],
      ]);
      return { ...listed(caller), path, statuses: [status], isCounted: false, needsDatabase };
    },
  };
}
