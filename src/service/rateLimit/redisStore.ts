/**
 * The rate limit's store in Redis (or Valkey): each client's sliding log is a list, which a script tests and extends. Redis
 * runs the script atomically, by its own clock. One round trip per request.
 */
import type { EventEmitter } from 'node:events';
import { Cluster, Command, Redis, ReplyError } from 'ioredis';
import { RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';
import { parseRedisUrl } from '../../config/redisAddress.js';
import { codeOf } from '../../database/errors.js';
import { UserError } from '../../userError.js';
import type { LimitStore } from './limiter.js';
import { resultOf, StoreClock, WINDOW_MS } from './slidingLog.js';

/**
 * Counts a request if it fits (slidingLog.ts).
 *
 * - ARGV[1]: when the request was received, by the clock of Redis; ARGV[2]: the limit; ARGV[3]: the window. All times are in
 *   microseconds.
 * - Returns 1 if the request is counted, else 0; the time; the number of requests in the window that ends now; and the time
 *   until a client at its limit may send another request.
 * - The commands it uses are listed in docs/operations.md, for Redis' ACL.
 */
const COUNT = `
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local at, limit, window = math.min(tonumber(ARGV[1]), now), tonumber(ARGV[2]), tonumber(ARGV[3])
local log, gone, recent = {}, 0, 0
local function set(i, request)
  redis.call('LSET', KEYS[1], i - 1, string.format('%.0f', request))
end
for i, request in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  request = tonumber(request)
  if request > now then
    request = now
    set(i, now)
  end
  -- Two windows are kept: a request may be counted up to a window late, and has to fit into the window before its time.
  if #log == 0 and request <= now - 2 * window then gone = i else log[#log + 1] = request end
end
if gone > 0 then redis.call('LTRIM', KEYS[1], gone, -1) end
local index = #log + 1
while index > 1 and log[index - 1] > at do index = index - 1 end
table.insert(log, index, at)
local fits = at > now - window
for first = math.max(1, index - limit), index do
  local last = log[first + limit]
  if last and last - log[first] < window then fits = false end
end
if fits then
  redis.call('RPUSH', KEYS[1], string.format('%.0f', log[#log]))
  for i = index, #log - 1 do set(i, log[i]) end
  redis.call('PEXPIRE', KEYS[1], 2 * window / 1000)
else
  table.remove(log, index)
end
for _, request in ipairs(log) do
  if request > now - window then recent = recent + 1 end
end
local oldest = log[math.max(1, #log - limit + 1)] or now
return { fits and 1 or 0, now, recent, oldest + window - now }
`;

/** Opens the store for a limit of `points` requests in a window. */
export function openRedisStore(url: string, points: number): LimitStore {
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
    // The old primary responds with READONLY after a failover; the address may lead to the new one.
    reconnectOnError(error: Error) {
      const isReplica = error.message.startsWith('READONLY');
      if (isReplica) failure = error;
      return isReplica;
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
    events.on('connect', () => {
      failure = undefined;
    });
    // ioredis stops connecting if there is a failover while it queries a sentinel for the primary.
    events.on('end', () => redis.connect().catch(() => {}));
    return new SlidingLog(redis, points);
  }

  const close = () => redis.removeAllListeners('end').disconnect();
  const retryStrategy = () => 200;
  const sentinel = { failoverDetector: true, sentinelCommandTimeout: 1000, sentinelRetryStrategy: retryStrategy };
  let redis = server ? new Redis({ ...options, ...server, ...sentinel, retryStrategy }) : openCluster();
  let limiter = createLimiter(redis);
  return {
    kind: 'redis',
    consume: (client, receivedAt) =>
      limiter.consume(client, 1, { receivedAt }).catch((error) => {
        if (error instanceof RateLimiterRes) throw error;
        if (redis instanceof Redis && CLUSTER_REDIRECTION.test(error.message)) {
          close();
          redis = openCluster();
          limiter = createLimiter(redis);
        }
        throw explain(error instanceof ReplyError ? error : (failure ?? error));
      }),
    async close() {
      close();
    },
  };
}

/** Redis with the script COUNT as a command. */
type CountingRedis = (Redis | Cluster) & {
  count(key: string, at: number, limit: number, window: number): Promise<[0 | 1, number, number, number]>;
};

/** A store as rate-limiter-flexible's README describes them, except that `_upsert` resolves to the result itself. */
class SlidingLog extends RateLimiterRedis {
  readonly #redis: CountingRedis;
  /** The clock of each node; without a cluster, there is one, with the key ''. */
  readonly #clocks = new Map<string, StoreClock>();

  constructor(redis: Redis | Cluster, points: number) {
    super({ storeClient: redis, points, duration: WINDOW_MS / 1000, keyPrefix: 'branded-phone-numbers:limit' });
    redis.defineCommand('count', { numberOfKeys: 1, lua: COUNT });
    this.#redis = redis as CountingRedis;
  }

  async _upsert(
    key: string,
    _points: number,
    ms: number,
    _force: boolean,
    { receivedAt }: { receivedAt: number },
  ): Promise<RateLimiterRes> {
    const clock = this.#clockOf(key);
    // If the estimate of the clock put the request before the window, it is counted again by the new estimate.
    do {
      if (this.#redis.status !== 'ready') throw new Error('Redis connection is not ready');
      const [at, sentAt] = [clock.at(receivedAt), performance.now()];
      const [isCounted, now, recent, waitUs] = await this.#redis.count(key, at, this.points, ms * 1000);
      clock.learn(sentAt, now);
      if (!StoreClock.isPast(at, now)) {
        return resultOf({ recent, waitMs: Math.ceil(waitUs / 1000) }, this.points, isCounted === 1);
      }
    } while (receivedAt > performance.now() - WINDOW_MS);
    throw new Error('not counted in time');
  }

  _getRateLimiterRes(_key: string, _points: number, result: RateLimiterRes): RateLimiterRes {
    return result;
  }

  #clockOf(key: string): StoreClock {
    const redis = this.#redis;
    const [node = ''] = (redis instanceof Cluster && redis.slots[new Command('get', [key]).getSlot()]) || [];
    const clock = this.#clocks.get(node) ?? new StoreClock();
    this.#clocks.set(node, clock);
    return clock;
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
