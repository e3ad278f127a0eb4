/**
 * The rate limit's store in Redis (or Valkey): the times of each client's counted requests in a list, tested and extended
 * by one script, which Redis runs atomically and by its own clock. One round trip per request.
 */
import type { EventEmitter } from 'node:events';
import { Cluster, Redis, ReplyError } from 'ioredis';
import { RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';
import { codeOf } from '../database/errors.js';
import { UserError } from '../userError.js';
import { type LimitStore, WINDOW_MS } from './limiter.js';
import { redisAddressOf } from './redisAddress.js';

/**
 * Counts a request, unless the client is over its limit. The library passes its key, and as ARGV the points to consume (one),
 * the window in seconds and the limit. Returns how many requests are counted (more than the limit when this one is refused)
 * and the milliseconds until the oldest of them leaves the window. After the clock was set back, as at a failover, times in
 * the future count as now, or the client would be blocked for as long as the step.
 */
const COUNT_REQUEST = `
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local window, limit = ARGV[2] * 1000000, tonumber(ARGV[3])
local requests = redis.call('LRANGE', KEYS[1], 0, -1)
for i, request in ipairs(requests) do
  if tonumber(request) > now then
    requests[i] = string.format('%.0f', now)
    redis.call('LSET', KEYS[1], i - 1, requests[i])
  end
end
local gone = 0
while requests[gone + 1] and tonumber(requests[gone + 1]) <= now - window do gone = gone + 1 end
if gone > 0 then redis.call('LTRIM', KEYS[1], gone, -1) end
local counted = #requests - gone
local allowed = counted < limit
if allowed then
  redis.call('RPUSH', KEYS[1], string.format('%.0f', now))
  redis.call('PEXPIRE', KEYS[1], ARGV[2] * 2000)
end
local oldest = tonumber(requests[gone + 1] or now)
return { allowed and counted + 1 or limit + 1, math.ceil((oldest + window - now) / 1000) }
`;

/** Opens the store of a limit of `points` requests in a window. */
export function openRedisStore(url: string, points: number): LimitStore {
  const { nodes, server, access } = redisAddressOf(url);
  /** Why there is no connection, or not as the URL says. */
  let failure: Error | undefined;
  const options = {
    ...access,
    connectTimeout: 1000,
    // A connection that was asked and stays silent was cut silently, or its server hangs: it is replaced.
    socketTimeout: 1000,
    // A request is never sent twice: it would be counted twice.
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    // Nothing is sent before our own commands, which then learn why Redis refuses.
    enableReadyCheck: false,
    protocol: 2,
    disableClientInfo: true,
    // The old primary answers this after a failover; the address may lead to the new one by now.
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
      // As it is, for the certificate.
      dnsLookup: (host, found) => found(null, host),
    });
    // ioredis follows ASK without a look at what becomes of its ASKING, whose failure would end the process.
    return cluster.on('+node', (node: Redis) => {
      const { asking } = node;
      node.asking = () => asking.call(node).catch(() => 'OK');
    });
  }

  function limiterIn(redis: Redis | Cluster): RateLimiterRedis {
    const events: EventEmitter = redis;
    for (const event of ['error', 'sentinelError', 'node error']) {
      events.on(event, (error) => {
        // What each node said came before.
        if (!ALL_FAILED.test(error.message)) failure = error;
      });
    }
    // A password, or a database that the URL names, is refused on a connection that stays open.
    events.on('error', (error) => error instanceof ReplyError && redis.disconnect(true));
    events.on('connect', () => {
      failure = undefined;
    });
    // ioredis gives up if it hears of a failover while it asks a sentinel for the primary.
    events.on('end', () => redis.connect().catch(() => {}));
    return new RateLimiterRedis({
      storeClient: redis,
      rejectIfRedisNotReady: true,
      customIncrTtlLuaScript: COUNT_REQUEST,
      keyPrefix: 'branded-phone-numbers:limit',
      points,
      duration: WINDOW_MS / 1000,
    });
  }

  const close = () => redis.removeAllListeners('end').disconnect();
  const retryStrategy = () => 200;
  const sentinel = { failoverDetector: true, sentinelCommandTimeout: 1000, sentinelRetryStrategy: retryStrategy };
  let redis = server ? new Redis({ ...options, ...server, ...sentinel, retryStrategy }) : openCluster();
  let limiter = limiterIn(redis);
  return {
    kind: 'redis',
    consume: (client) =>
      limiter.consume(client).catch((error) => {
        if (error instanceof RateLimiterRes) throw error;
        if (redis instanceof Redis && OF_A_CLUSTER.test(error.message)) {
          close();
          redis = openCluster();
          limiter = limiterIn(redis);
        }
        throw explained(error instanceof ReplyError ? error : (failure ?? error));
      }),
    async close() {
      close();
    },
  };
}

/** What a node of a cluster says of what is elsewhere. */
const OF_A_CLUSTER = /^(MOVED|ASK) /;
/** What ioredis says after it has told of each node. */
const ALL_FAILED = /^(All sentinels are unreachable|Failed to refresh slots)/;

/** What Redis or the connection to it says if waiting does not help, and what does help. */
const REFUSALS: readonly [RegExp, string][] = [
  [
    /^failed to connect to sentinel .* because (WRONGPASS|NOAUTH)/,
    'set sentinelUsername and sentinelPassword in the URL',
  ],
  [/^(WRONGPASS|NOAUTH|ERR (invalid password|AUTH))/, 'set the user and the password in the URL'],
  [/^(NOPERM|ERR (ACL failure|The user executing the script))/, 'grant its user what docs/operations.md lists'],
  [/^ERR This instance has cluster support/, 'name one host, or redis+sentinel://host,host/name'],
  [/ ERR No such master/, 'end the URL with the name that its sentinels have for the primary'],
  [/ ERR unknown command .sentinel/, 'it is no sentinel: write redis://host'],
  [/^DENIED/, 'give it a password, or turn its protected mode off'],
  [
    /^ERR (unknown command|unsupported)/,
    'use a Redis or Valkey that runs scripts; for sentinels write redis+sentinel://host,host/name',
  ],
  [/^ERR (DB index|invalid DB|SELECT)/, 'leave out the number of the database, or use one that it has'],
  [/^(ERR_TLS|ERR_SSL|CERT_|SELF_SIGNED|DEPTH_ZERO|UNABLE_TO)/, 'see "Redis" in docs/operations.md for TLS'],
];

/** The error with its reason; a UserError if waiting does not help. */
function explained(error: Error): Error {
  // Redis in protected mode answers before anything was asked, and ioredis puts words of its own in front.
  const message = error.message.replace(/^.* Last error: /s, '');
  // Only the first sentence; what follows is Redis' own advice, or names a script by its digest.
  const reason = (message || codeOf(error)).replace(/(\. | script: |, with args ).*|\.$/s, '');
  const advice = REFUSALS.find(([pattern]) => pattern.test(message) || pattern.test(codeOf(error)))?.[1];
  return advice === undefined ? new Error(reason) : new UserError(`REDIS_URL: ${reason}; ${advice}`);
}
