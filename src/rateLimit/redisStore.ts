/**
 * The rate limit's store in Redis (or Valkey): each client's sliding log in a list, tested and extended by one script, which
 * Redis runs atomically and by its own clock. One round trip per request.
 */
import type { EventEmitter } from 'node:events';
import { Cluster, Command, Redis, ReplyError } from 'ioredis';
import { RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';
import { codeOf } from '../database/errors.js';
import { UserError } from '../userError.js';
import type { LimitStore } from './limiter.js';
import { redisAddressOf } from './redisAddress.js';
import { type ClientWindow, resultOf, StoreClock, WINDOW_MS } from './slidingLog.js';

/**
 * Counts the request that came at ARGV[1], by the clock of Redis, unless the client is over the limit of ARGV[2] in a window of
 * ARGV[3] microseconds (slidingLog.ts). Returns 1 if it is counted, the clock, the requests in the window before it, and the
 * microseconds until the oldest of as many as the limit leaves. After the clock was set back, as at a failover, times in the
 * future count as now, or the client would be blocked for as long as the step. Needs no commands but those that
 * docs/operations.md lists.
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
  -- A request may come as late as a window after others that it has to be compared with.
  if #log == 0 and request <= now - 2 * window then gone = i else log[#log + 1] = request end
end
if gone > 0 then redis.call('LTRIM', KEYS[1], gone, -1) end
local place = #log + 1
while place > 1 and log[place - 1] > at do place = place - 1 end
table.insert(log, place, at)
local fits = at > now - window
for first = math.max(1, place - limit), place do
  local last = log[first + limit]
  if last and last - log[first] < window then fits = false end
end
if fits then
  redis.call('RPUSH', KEYS[1], string.format('%.0f', log[#log]))
  for i = place, #log - 1 do set(i, log[i]) end
  redis.call('PEXPIRE', KEYS[1], 2 * window / 1000)
else
  table.remove(log, place)
end
for _, request in ipairs(log) do
  if request > now - window then recent = recent + 1 end
end
local oldest = log[math.max(1, #log - limit + 1)] or now
return { fits and 1 or 0, now, recent, oldest + window - now }
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

  function limiterIn(redis: Redis | Cluster): SlidingLog {
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
    return new SlidingLog(redis, points);
  }

  const close = () => redis.removeAllListeners('end').disconnect();
  const retryStrategy = () => 200;
  const sentinel = { failoverDetector: true, sentinelCommandTimeout: 1000, sentinelRetryStrategy: retryStrategy };
  let redis = server ? new Redis({ ...options, ...server, ...sentinel, retryStrategy }) : openCluster();
  let limiter = limiterIn(redis);
  return {
    kind: 'redis',
    consume: (client, came) =>
      limiter.consume(client, 1, { came }).catch((error) => {
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

/** The outcome of a request. */
interface Outcome {
  isCounted: boolean;
  log: ClientWindow;
}

type CountingRedis = (Redis | Cluster) & {
  count(key: string, at: number, limit: number, window: number): Promise<[0 | 1, number, number, number]>;
};

/** A store as the library has it written: by `_upsert`, which counts, and `_getRateLimiterRes`, which says what that means. */
class SlidingLog extends RateLimiterRedis {
  readonly #redis: CountingRedis;
  /** By the node; a Redis without a cluster is one. */
  readonly #clocks = new Map<string, StoreClock>();

  constructor(redis: Redis | Cluster, points: number) {
    const ours = { keyPrefix: 'branded-phone-numbers:limit', duration: WINDOW_MS / 1000 };
    super({ storeClient: redis, points, ...ours });
    redis.defineCommand('count', { numberOfKeys: 1, lua: COUNT });
    this.#redis = redis as CountingRedis;
  }

  async _upsert(
    key: string,
    _points: number,
    ms: number,
    _force: boolean,
    { came }: { came: number },
  ): Promise<Outcome> {
    const clock = this.#clockOf(key);
    // Again, if it came too long ago by the clock as it was known before.
    do {
      if (this.#redis.status !== 'ready') throw new Error('Redis connection is not ready');
      const [at, sent] = [clock.at(came), performance.now()];
      const [isCounted, now, recent, wait] = await this.#redis.count(key, at, this.points, ms * 1000);
      clock.learn(sent, now);
      const isPast = StoreClock.isPast(at, now);
      if (!isPast) return { isCounted: isCounted === 1, log: { now, recent, waitMs: Math.ceil(wait / 1000) } };
    } while (came > performance.now() - WINDOW_MS);
    throw new Error('not counted in time');
  }

  _getRateLimiterRes(_key: string, _points: number, { log, isCounted }: Outcome): RateLimiterRes {
    return resultOf(log, this.points, isCounted);
  }

  #clockOf(key: string): StoreClock {
    const redis = this.#redis;
    const [node = ''] = (redis instanceof Cluster && redis.slots[new Command('get', [key]).getSlot()]) || [];
    const clock = this.#clocks.get(node) ?? new StoreClock();
    this.#clocks.set(node, clock);
    return clock;
  }
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
