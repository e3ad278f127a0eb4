/**
 * The rate limit's store in Redis (or Valkey): the times of each client's counted requests in a list, tested and extended
 * by one script, which Redis runs alone and on its own clock. One round trip a request.
 */
import { Redis } from 'ioredis';
import { RateLimiterRedis, type RateLimiterRes } from 'rate-limiter-flexible';
import type { LimitStore } from './rateLimiter.js';

const PREFIX = 'branded-phone-numbers:';
const INSTANCES = `${PREFIX}instances`;

/** Milliseconds after which a connection that can't be made is given up, and between two attempts. */
const CONNECT_LIMIT = 1000;
const RECONNECT_PAUSE = 200;

/**
 * Handed to the library: KEYS[1] is the client's, ARGV the points to consume (one), the window in seconds and the limit.
 * Answers how many requests are counted, more than the limit when this one is refused, and the milliseconds until the
 * oldest of them leaves the window. A clock that jumps back, as at a failover, at worst blocks until the key expires.
 */
const COUNT_REQUEST = `
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local window, limit = ARGV[2] * 1000000, tonumber(ARGV[3])
local requests = redis.call('LRANGE', KEYS[1], 0, -1)
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

/** Puts the instance on the list of those that live, drops those not heard of for ARGV[2] ms, and counts the list. */
const COUNT_INSTANCES = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
`;

type Client = Redis & {
  countInstances(key: string, instance: string, patience: number): Promise<number>;
};

type Upsert = (...given: unknown[]) => Promise<[consumed: number, wait: number]>;

/** The library's own, which its types don't show. */
const { _upsert: upsert } = RateLimiterRedis.prototype as unknown as { _upsert: Upsert };

export class SlidingLogRedis extends RateLimiterRedis implements LimitStore {
  readonly kind = 'redis';
  readonly #url: string;
  #redis: Client;
  #reportLoss: () => void = () => {};

  constructor(url: string, points: number, window: number) {
    const redis = connect(url);
    super({
      storeClient: redis,
      customIncrTtlLuaScript: COUNT_REQUEST,
      keyPrefix: `${PREFIX}limit`,
      points,
      duration: window,
      // A client over its limit is refused from memory until its oldest request leaves the window: asking the store
      // could not answer otherwise before.
      inMemoryBlockOnConsumed: points + 1,
    });
    this.#url = url;
    this.#redis = redis;
    this.#watch(redis);
  }

  /** Called by the library. The wait began when Redis answered, so what the answer took to come is no part of it. */
  async _upsert(...given: unknown[]): Promise<[consumed: number, wait: number]> {
    const sent = performance.now();
    const [consumed, wait] = await upsert.apply(this, given);
    return [consumed, Math.max(0, wait - (performance.now() - sent))];
  }

  count(client: string): Promise<RateLimiterRes> {
    return this.consume(client);
  }

  async countInstances(instance: string, patience: number): Promise<number> {
    return this.#redis.countInstances(INSTANCES, instance, patience);
  }

  async leave(instance: string): Promise<void> {
    await this.#redis.zrem(INSTANCES, instance);
  }

  onLoss(report: () => void): void {
    this.#reportLoss = report;
  }

  /** A connection that is open but does not answer would hang for ever; one that is being made has its own time limit. */
  reopen(): void {
    if (['connecting', 'reconnecting', 'wait'].includes(this.#redis.status)) return;
    const old = this.#redis;
    this.#redis = connect(this.#url);
    (this as unknown as { client: Redis }).client = this.#redis;
    old.disconnect();
    this.#watch(this.#redis);
  }

  async close(): Promise<void> {
    this.#reportLoss = () => {};
    this.#redis.disconnect();
  }

  #watch(redis: Redis): void {
    redis.on('close', () => redis === this.#redis && this.#reportLoss());
    // Told by the commands that fail; without a listener ioredis would print it.
    redis.on('error', () => {});
  }
}

function connect(url: string): Client {
  return new Redis(url, {
    connectionName: 'branded-phone-numbers',
    scripts: {
      rlflxIncr: { lua: COUNT_REQUEST, numberOfKeys: 1 },
      countInstances: { lua: COUNT_INSTANCES, numberOfKeys: 1 },
    },
    connectTimeout: CONNECT_LIMIT,
    retryStrategy: () => RECONNECT_PAUSE,
    // A request is never sent twice: it would be counted twice.
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    enableReadyCheck: false,
    // After a failover the old primary answers so; the address may lead to the new one by now.
    reconnectOnError: (error) => error.message.startsWith('READONLY'),
  }) as Client;
}
