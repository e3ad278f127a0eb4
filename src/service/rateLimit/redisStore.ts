/** The rate limit's store in Redis (or Valkey): a client's sliding log is a list, which an atomic script tests and extends. */
import type { EventEmitter } from 'node:events';
import { createRequire } from 'node:module';
import type * as IoRedis from 'ioredis';
import type { Cluster, Redis } from 'ioredis';
import { RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';
import { parseRedisUrl } from '../../config/redisAddress.js';
import { codeOf } from '../../database/errors.js';
import { UserError } from '../../userError.js';
import { type Counted, type LimitStore, resultOf, WINDOW_MS } from './limiter.js';

/**
 * Counts a request if the client's last second has room for it.
 *
 * - ARGV[1]: the limit; ARGV[2]: the window in microseconds, the unit of all times.
 * - Returns the number of requests in the window, or more than the limit if this one is refused; and the time until the
 *   oldest leaves the window.
 * - After the clock was set back, times in the future become the current time: otherwise, the client would be blocked
 *   until then.
 * - The commands it uses are listed in docs/operations.md, for Redis' ACL.
 */
const COUNT = `
-- Read the clock.
local time = redis.call('TIME')
local now, limit, window = time[1] * 1000000 + time[2], tonumber(ARGV[1]), tonumber(ARGV[2])
local moment = string.format('%.0f', now)

-- Keep the requests of the last second.
local requests, gone = redis.call('LRANGE', KEYS[1], 0, -1), 0
for i, request in ipairs(requests) do
  if tonumber(request) <= now - window then gone = i end
  if tonumber(request) > now then redis.call('LSET', KEYS[1], i - 1, moment) end
end
if gone > 0 then redis.call('LTRIM', KEYS[1], gone, -1) end

-- Append this one if it fits.
local counted, oldest = #requests - gone, math.min(requests[gone + 1] or now, now)
if counted < limit then
  redis.call('RPUSH', KEYS[1], moment)
  redis.call('PEXPIRE', KEYS[1], 2 * window / 1000)
end
return { counted < limit and counted + 1 or limit + 1, oldest + window - now }
`;

/** Opens the store for a limit of `points` requests in a window. */
export function openRedisStore(url: string, points: number): LimitStore {
  // Loaded here, since it takes a tenth of the CPU time of a start that needs no Redis.
  const { Cluster, Redis, ReplyError } = createRequire(import.meta.url)('ioredis') as typeof IoRedis;
  const { nodes, server, access } = parseRedisUrl(url);
  /** The last failure of a connection, until one opens. */
  let failure: Error | undefined;
  const options = {
    ...access,
    connectTimeout: 1000,
    // A connection on which no response arrives is dead, or its server hangs: it is replaced.
    socketTimeout: 1000,
    // Commands are not sent again, because a request would be counted twice.
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    // Nothing is sent before our own commands, so that these fail with Redis' reason.
    enableReadyCheck: false,
    protocol: 2,
    disableClientInfo: true,
    // The old primary responds with READONLY after a failover; the address may lead to the new one. Only at the first such error
    // of a connection: each time, ioredis adds a listener and a timer to it.
    reconnectOnError(error: Error) {
      if (!error.message.startsWith('READONLY')) return false;
      const isFirst = !failure?.message.startsWith('READONLY');
      failure = error;
      return isFirst;
    },
  } as const;

  function openCluster(): Cluster {
    const cluster = new Cluster(nodes, {
      redisOptions: options,
      enableReadyCheck: false,
      retryDelayOnFailover: 0,
      retryDelayOnClusterDown: 0,
      // Not resolved here: the certificate is for the name.
      dnsLookup: (host, callback) => callback(null, host),
    });
    // When ioredis follows ASK, it ignores the promise of its ASKING command. A rejection would end the process.
    return cluster.on('+node', (node: Redis) => {
      const { asking } = node;
      node.asking = () => asking.call(node).catch(() => 'OK');
    });
  }

  function createLimiter(redis: Redis | Cluster): SlidingLog {
    const events: EventEmitter = redis;
    for (const event of ['error', 'sentinelError', 'node error']) {
      events.on(event, (error) => {
        // Its message has no reason; the errors before it have one for each node.
        if (!ALL_FAILED.test(error.message)) failure = error;
      });
    }
    // If Redis rejects the password or the database of the URL, the connection stays open: open a new one.
    events.on('error', (error) => error instanceof ReplyError && redis.disconnect(true));
    events.on('connect', () => (failure = undefined));
    // ioredis stops connecting if there is a failover while it queries a sentinel for the primary.
    events.on('end', () => redis.connect().catch(() => {}));
    return new SlidingLog(redis, points);
  }

  // The listener for `end` would connect again.
  const close = async () => redis.removeAllListeners('end').disconnect();
  const retryStrategy = () => 200;
  const sentinel = { failoverDetector: true, sentinelCommandTimeout: 1000, sentinelRetryStrategy: retryStrategy };
  let redis = server ? new Redis({ ...options, ...server, ...sentinel, retryStrategy }) : openCluster();
  let limiter = createLimiter(redis);
  return {
    kind: 'redis',
    consume: (client) =>
      limiter.consume(client).catch((error) => {
        if (error instanceof RateLimiterRes) throw error;
        // The host of the URL belongs to a cluster, so the cluster is used from the next request on.
        if (redis instanceof Redis && CLUSTER_REDIRECTION.test(error.message)) {
          void close();
          redis = openCluster();
          limiter = createLimiter(redis);
        }
        throw explain(error instanceof ReplyError ? error : (failure ?? error));
      }),
    close,
  };
}

type CountingRedis = (Redis | Cluster) & {
  count(key: string, limit: number, window: number): Promise<[consumed: number, waitUs: number]>;
};

/** A store as rate-limiter-flexible's README describes them. */
class SlidingLog extends RateLimiterRedis {
  readonly #redis: CountingRedis;

  constructor(redis: Redis | Cluster, points: number) {
    super({ storeClient: redis, points, duration: WINDOW_MS / 1000, keyPrefix: 'branded-phone-numbers:limit' });
    redis.defineCommand('count', { numberOfKeys: 1, lua: COUNT });
    this.#redis = redis as CountingRedis;
  }

  async _upsert(key: string): Promise<Counted> {
    if (this.#redis.status !== 'ready') throw new Error('Redis connection is not ready');
    const [consumed, waitUs] = await this.#redis.count(key, this.points, WINDOW_MS * 1000);
    return { consumed, waitMs: waitUs / 1000 };
  }

  _getRateLimiterRes(_key: string, _points: number, counted: Counted): RateLimiterRes {
    return resultOf(counted, this.points);
  }
}

/** A cluster node's error for keys that another node has. */
const CLUSTER_REDIRECTION = /^(MOVED|ASK) /;
/** The messages of the error that ioredis emits last, after one error for each node, if it could reach none. */
const ALL_FAILED = /^(All sentinels are unreachable|Failed to refresh slots)/;

/** Errors of Redis, or of the connection to it, that are permanent, and advice for each. */
const PERMANENT_ERRORS: readonly [RegExp, string][] = [
  [
    /^failed to connect to sentinel .* because (WRONGPASS|NOAUTH)/,
    'set sentinelUsername and sentinelPassword in the URL',
  ],
  [/^(WRONGPASS|NOAUTH|ERR (invalid password|AUTH))/, 'set the user and the password in the URL'],
  [/^(NOPERM|ERR (ACL failure|The user executing the script))/, 'grant its user what docs/operations.md lists'],
  [/^ERR This instance has cluster support/, 'name one host, or redis+sentinel://host,host/name'],
  [/ ERR No such master/, 'end the URL with the name that its sentinels have for the primary'],
  [/ ERR unknown command .sentinel/, 'it is not a sentinel; use redis://host'],
  [/^DENIED/, 'give it a password, or turn its protected mode off'],
  [
    /^ERR (unknown command|unsupported)/,
    'use a Redis or Valkey that runs scripts; for sentinels use redis+sentinel://host,host/name',
  ],
  [/^ERR (DB index|invalid DB|SELECT)/, 'leave out the number of the database, or use one that it has'],
  [/^(ERR_TLS|ERR_SSL|CERT_|SELF_SIGNED|DEPTH_ZERO|UNABLE_TO)/, 'see "Redis" in docs/operations.md for TLS'],
];

/** Returns an error with the reason alone as its message; a UserError with advice if the failure is permanent. */
function explain(error: Error): Error {
  // If Redis is in protected mode, it sends an error before any command, and ioredis adds a text in front.
  const message = error.message.replace(/^.* Last error: /s, '');
  // Only the first sentence: the rest is Redis' advice, or the digest of a script.
  const reason = (message || codeOf(error)).replace(/(\. | script: |, with args ).*|\.$/s, '');
  const advice = PERMANENT_ERRORS.find(([pattern]) => pattern.test(message) || pattern.test(codeOf(error)))?.[1];
  return advice === undefined ? new Error(reason) : new UserError(`REDIS_URL: ${reason}; ${advice}`);
}
