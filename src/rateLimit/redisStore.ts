/**
 * The rate limit's store in Redis (or Valkey): the times of each client's counted requests in a list, tested and extended
 * by one script, which Redis runs atomically and by its own clock. One round trip per request.
 */
import { Redis } from 'ioredis';
import { RateLimiterRedis } from 'rate-limiter-flexible';
import type { LimitStore } from './limiter.js';

const PREFIX = 'branded-phone-numbers:';
const INSTANCES = `${PREFIX}instances`;

/** How long an attempt to connect may take, and the pause before the next. */
const CONNECT_TIMEOUT_MS = 1000;
const RECONNECT_DELAY_MS = 200;

/**
 * Counts a request. KEYS[1] is the client's, ARGV what the library passes: the points to consume (one), the window in
 * seconds and the limit. Returns how many requests are counted (more than the limit when this one is refused) and the
 * milliseconds until the oldest of them leaves the window. After the clock was set back, as at a failover, times in the
 * future count as now.
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

/**
 * Records a heartbeat of the instance, drops the instances whose last one is ARGV[2] ms old (or lies as far in the future,
 * because the clock was set back), and counts the rest.
 */
const COUNT_INSTANCES = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + ARGV[2], '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
`;

type Connection = Redis & {
  countInstances(key: string, instance: string, maxAgeMs: number): Promise<number>;
};

/** Opens the store of a limit of `points` requests in `windowSeconds`. */
export function openRedisStore(url: string, points: number, windowSeconds: number): LimitStore {
  let reportLoss = () => {};
  let redis = connect();
  let limiter = limiterOn(redis);

  function connect(): Connection {
    const connection = openConnection(url);
    connection.on('close', () => connection === redis && reportLoss());
    // The commands that fail report it; without a listener ioredis would print it.
    connection.on('error', () => {});
    return connection;
  }

  /** The library has no sliding log of its own, but lets us replace the script that counts. */
  function limiterOn(storeClient: Redis): RateLimiterRedis {
    return new RateLimiterRedis({
      storeClient,
      customIncrTtlLuaScript: COUNT_REQUEST,
      keyPrefix: `${PREFIX}limit`,
      points,
      duration: windowSeconds,
    });
  }

  return {
    kind: 'redis',
    consume: (client) => limiter.consume(client),
    countInstances: (instance, maxAgeMs) => redis.countInstances(INSTANCES, instance, maxAgeMs),
    async leave(instance) {
      await redis.zrem(INSTANCES, instance);
    },
    onLoss(report) {
      reportLoss = report;
    },
    /** An open connection that does not answer would hang forever; one that is being opened has its own deadline. */
    reopen() {
      if (['connecting', 'reconnecting', 'wait'].includes(redis.status)) return;
      const old = redis;
      redis = connect();
      limiter = limiterOn(redis);
      old.disconnect();
    },
    async close() {
      reportLoss = () => {};
      redis.disconnect();
    },
  };
}

function openConnection(url: string): Connection {
  return new Redis(url, {
    connectionName: 'branded-phone-numbers',
    scripts: { countInstances: { lua: COUNT_INSTANCES, numberOfKeys: 1 } },
    connectTimeout: CONNECT_TIMEOUT_MS,
    retryStrategy: () => RECONNECT_DELAY_MS,
    // A request is never sent twice: it would be counted twice.
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    enableReadyCheck: false,
    // The old primary answers this after a failover; the address may lead to the new one by now.
    reconnectOnError: (error) => error.message.startsWith('READONLY'),
  }) as Connection;
}
