/** The settings: environment variables, read once at the start. */
import { isIP } from 'node:net';
import { z } from 'zod';
import { hostsOf } from './databaseUrl.js';

const wholeNumber = (least: number, most: number) =>
  z
    .string()
    .regex(/^[0-9]+$/, `must be a whole number from ${least} to ${most}`)
    .transform(Number)
    .refine((value) => value >= least && value <= most, `must be a whole number from ${least} to ${most}`);

const address = (protocols: string[]) =>
  z.string().refine((value) => hostsOf(value).every((url) => isUrl(url, protocols)), {
    error: `must be an address that begins with ${protocols.map((protocol) => `${protocol}//`).join(' or ')}`,
  });

const variables = z.object({
  PORT: wholeNumber(0, 65_535).default(3000),
  HOST: z.string().default('127.0.0.1'),
  DATABASE_URL: address(['postgres:', 'postgresql:']).optional(),
  REDIS_URL: address(['redis:', 'rediss:']).optional(),
  RATE_LIMIT_PER_SECOND: wholeNumber(0, 1_000_000).default(10),
  AUTH: z.enum(['none', 'api-key'], { error: 'must be none or api-key' }).optional(),
  TRUST_PROXY: z
    .string()
    .refine((value) => value.split(',').every(isProxy), {
      error: 'must be the number of proxies in front, or their addresses or subnets, separated by commas',
    })
    .transform((value) => (/^[0-9]+$/.test(value) ? Number(value) : value.split(',').map((part) => part.trim())))
    .default(0),
  REQUEST_TIMEOUT_SECONDS: wholeNumber(1, 60).default(5),
  MAX_REQUESTS_IN_FLIGHT: wholeNumber(1, 100_000).default(256),
  MAX_CONNECTIONS: wholeNumber(1, 1_000_000).default(2000),
  DATABASE_CONNECTIONS: wholeNumber(1, 1000).default(10),
  DRAIN_SECONDS: wholeNumber(0, 60).default(2),
  METRICS_PORT: wholeNumber(0, 65_535).optional(),
  METRICS_HOST: z.string().default('127.0.0.1'),
  LOG_LEVEL: z
    .enum(['silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace'], {
      error: 'must be silent, fatal, error, warn, info, debug or trace',
    })
    .default('info'),
});

/** The names of all settings. */
export const settingNames = Object.keys(variables.shape);

const settings = variables.transform((read, context) => {
  const isOpen = !isLoopback(read.HOST);
  if (isOpen && read.AUTH === undefined) {
    context.addIssue({
      code: 'custom',
      path: ['AUTH'],
      message: `must be chosen where HOST (${read.HOST}) can be reached from other machines: api-key, or none to let anyone in`,
    });
  }
  return { ...read, AUTH: read.AUTH ?? 'none' };
});

export type Config = z.output<typeof settings>;

/** The service can't be had with these settings; the message says, a line each, which has to change. */
export class ConfigError extends Error {}

/**
 * Reads the settings; an empty variable counts as unset.
 * @throws {ConfigError} naming every variable that is wrong
 */
export function readConfig(environment: NodeJS.ProcessEnv): Config {
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== ''));
  const result = settings.safeParse(given);
  if (result.success) return result.data;
  throw new ConfigError(result.error.issues.map(({ path, message }) => `${path.join('.')} ${message}`).join('\n'));
}

function isUrl(text: string, protocols: string[]): boolean {
  return URL.canParse(text) && protocols.includes(new URL(text).protocol);
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}

function isProxy(text: string): boolean {
  const [ip = '', prefix] = text.trim().split('/');
  if (/^[0-9]+$/.test(text.trim())) return true;
  return (
    ['loopback', 'linklocal', 'uniquelocal'].includes(ip) || (isIP(ip) > 0 && (!prefix || /^[0-9]+$/.test(prefix)))
  );
}
