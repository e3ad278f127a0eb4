/**
 * The rate limit's store in Redis (or Valkey): the times of each client's counted requests in a list, tested and extended
 * by one script, which Redis runs atomically and by its own clock. One round trip per request.
 *
 * rate-limiter-flexible counts in fixed windows, but lets us replace the script that counts.
 */
import { randomUUID } from 'node:crypto';
import { Redis, ReplyError } from 'ioredis';
import { RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';
import { codeOf } from '../database/errors.js';
import { UserError } from '../userError.js';
import { GONE_AFTER_MS, type LimitStore, StoreForgot, WINDOW_MS } from './limiter.js';

const PREFIX = 'branded-phone-numbers:';
const INSTANCES = `${PREFIX}instances`;
const CLIENTS = `${PREFIX}limit`;

/** How long an attempt to connect may take, and the pause before the next. */
const CONNECT_TIMEOUT_MS = 1000;
const RECONNECT_DELAY_MS = 200;

/** What the script returns instead of a count if the instance is not registered. */
const FORGOTTEN = -1;

/**
 * Counts a request, unless the client is over its limit. The library passes one key, so it is the client's with the
 * instance's id, a UUID, behind it; and as ARGV the points to consume (one), the window in seconds and the limit. Returns how
 * many requests are counted (more than the limit when this one is refused) and the milliseconds until the oldest of them
 * leaves the window. After the clock was set back, as at a failover, times in the future count as now, or the client would
 * be blocked for as long as the step.
 */
const COUNT_REQUEST = `
local key, instance = KEYS[1]:sub(1, -38), KEYS[1]:sub(-36)
if not redis.call('ZSCORE', '${INSTANCES}', instance) then return { ${FORGOTTEN}, 0 } end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local window, limit = ARGV[2] * 1000000, tonumber(ARGV[3])
local requests = redis.call('LRANGE', key, 0, -1)
for i, request in ipairs(requests) do
  if tonumber(request) > now then
    requests[i] = string.format('%.0f', now)
    redis.call('LSET', key, i - 1, requests[i])
  end
end
local gone = 0
while requests[gone + 1] and tonumber(requests[gone + 1]) <= now - window do gone = gone + 1 end
if gone > 0 then redis.call('LTRIM', key, gone, -1) end
local counted = #requests - gone
local allowed = counted < limit
if allowed then
  redis.call('RPUSH', key, string.format('%.0f', now))
  redis.call('PEXPIRE', key, ARGV[2] * 2000)
end
local oldest = tonumber(requests[gone + 1] or now)
return { allowed and counted + 1 or limit + 1, math.ceil((oldest + window - now) / 1000) }
`;

/**
 * Records a heartbeat of the instance ARGV[1], drops the instances whose last one is ARGV[2] ms old (or lies as far in the
 * future, because the clock was set back). Returns how many there are, and 1 if this one was not registered before. KEYS[2]
 * is not touched: it represents the clients' keys, since a node of a cluster has to refuse the two of them at the start.
 */
const REGISTER = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local added = redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + ARGV[2], '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return { redis.call('ZCARD', KEYS[1]), added }
`;

interface Connection {
  redis: Redis & {
    register(instances: string, clients: string, instance: string, maxAgeMs: number): Promise<[number, number]>;
  };
  limiter: RateLimiterRedis;
  /** Why it is not open, or not as the URL says. */
  failure: Error | undefined;
}

/** Opens the store of a limit of `points` requests in a window. */
export function openRedisStore(url: string, points: number): LimitStore {
  const instance = randomUUID();
  let connection = connect(url, points);

  /** What Redis answers; without a connection, rejects at once with the reason. */
  async function run<T>(command: (connection: Connection) => Promise<T>): Promise<T> {
    const used = connection;
    try {
      if (used.failure) throw used.failure;
      return await command(used);
    } catch (error) {
      throw explained(error instanceof ReplyError ? error : (used.failure ?? error));
    }
  }

  return {
    kind: 'redis',
    async count(client) {
      const result = await run(({ limiter }) => limiter.consume(`${client} ${instance}`).catch(refused));
      if (result.consumedPoints === FORGOTTEN) throw new StoreForgot();
      const { consumedPoints, remainingPoints, msBeforeNext } = result;
      return { allowed: consumedPoints <= points, remaining: remainingPoints, waitMs: msBeforeNext };
    },
    async register() {
      const [instances, added] = await run(({ redis }) => redis.register(INSTANCES, CLIENTS, instance, GONE_AFTER_MS));
      return { instances, isNew: added === 1 };
    },
    async leave() {
      await connection.redis.zrem(INSTANCES, instance);
    },
    /** An open connection that does not answer would hang forever; one that is being opened has its own deadline. */
    reopen() {
      if (['connecting', 'reconnecting', 'wait'].includes(connection.redis.status)) return;
      connection.redis.disconnect();
      connection = connect(url, points);
    },
    async close() {
      connection.redis.disconnect();
    },
  };
}

/** The library rejects with its result if a request is refused. */
function refused(reason: unknown): RateLimiterRes {
  if (reason instanceof RateLimiterRes) return reason;
  throw reason;
}

function connect(url: string, points: number): Connection {
  const redis = new Redis(url, {
    scripts: {
      register: { lua: REGISTER, numberOfKeys: 2 },
    },
    connectTimeout: CONNECT_TIMEOUT_MS,
    retryStrategy: () => RECONNECT_DELAY_MS,
    // A request is never sent twice: it would be counted twice.
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    // Nothing is sent before our own commands, which then learn why Redis refuses.
    enableReadyCheck: false,
    protocol: 2,
    disableClientInfo: true,
    // The old primary answers this after a failover; the address may lead to the new one by now.
    reconnectOnError(error) {
      const isReplica = error.message.startsWith('READONLY');
      if (isReplica) connection.failure = error;
      return isReplica;
    },
  });
  const limiter = new RateLimiterRedis({
    storeClient: redis,
    customIncrTtlLuaScript: COUNT_REQUEST,
    keyPrefix: CLIENTS,
    points,
    duration: WINDOW_MS / 1000,
  });
  const connection = { redis, limiter, failure: undefined } as unknown as Connection;
  redis.on('connect', () => {
    connection.failure = undefined;
  });
  // Also when a password, or the database that the URL names, is refused on an open connection.
  redis.on('error', (error) => {
    connection.failure = error;
  });
  redis.on('close', () => {
    connection.failure ??= new Error('Redis closed the connection');
  });
  return connection;
}

/** What Redis or the connection to it says if waiting does not help, and what does help. */
const REFUSALS: readonly [RegExp, string][] = [
  [/^(WRONGPASS|NOAUTH|ERR (invalid password|AUTH))/, 'set the user and the password in the URL'],
  [/^(NOPERM|ERR (ACL failure|The user executing the script))/, 'grant its user what docs/operations.md lists'],
  [/^(MOVED|ASK|CLUSTERDOWN|CROSSSLOT|TRYAGAIN)\b/, 'a cluster is not supported: use a Redis with cluster mode off'],
  [/^DENIED/, 'give it a password, or turn its protected mode off'],
  [/^ERR (unknown command|unsupported)/, 'use a Redis or Valkey that runs scripts (EVAL, EVALSHA)'],
  [/^ERR (DB index|invalid DB|SELECT)/, 'leave out the number of the database, or use one that it has'],
  [/^(ERR_TLS|ERR_SSL|CERT_|SELF_SIGNED|DEPTH_ZERO|UNABLE_TO)/, 'see "Redis" in docs/operations.md for TLS'],
];

/** The error with its reason; a UserError if waiting does not help. */
function explained(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(String(error));
  // Only the first sentence; what follows is Redis' own advice, or names a script by its digest.
  const reason = (error.message || codeOf(error)).replace(/(\. | script: ).*|\.$/s, '');
  const advice = REFUSALS.find(([pattern]) => pattern.test(error.message) || pattern.test(codeOf(error)))?.[1];
  return advice === undefined ? new Error(reason) : new UserError(`REDIS_URL: ${reason}; ${advice}`);
}
