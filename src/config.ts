/** The settings: environment variables, read once at the start. */
import { isIP } from 'node:net';
import { compile } from 'proxy-addr';
import { z } from 'zod';
import { isLoopback } from './loopback.js';
import { faultOfPostgresUrl, faultOfUrl, withEnvironment } from './postgresUrl/postgresUrl.js';
import { nearest, plain } from './suggestion.js';

const wholeNumber = (least: number, most: number) =>
  z
    .string()
    .refine((value) => /^[0-9]+$/.test(value) && Number(value) >= least && Number(value) <= most, {
      error: `must be a whole number from ${least} to ${most}`,
    })
    .transform(Number);

const address = (protocols: string[]) => checked((value) => faultOfUrl(value, protocols));

/** A string that is valid unless `faultOf` returns what it must be instead. */
const checked = (faultOf: (value: string) => string | undefined) =>
  z.string().check(({ value, issues }) => {
    const message = faultOf(value);
    if (message) issues.push({ code: 'custom', input: value, message });
  });

const variables = z.object({
  PORT: wholeNumber(0, 65_535).default(3000),
  HOST: z.string().default('127.0.0.1'),
  DATABASE_URL: checked(faultOfPostgresUrl).optional(),
  REDIS_URL: address(['redis:', 'rediss:']).optional(),
  RATE_LIMIT_PER_SECOND: wholeNumber(0, 1_000_000).default(10),
  AUTH: z.enum(['none', 'api-key'], { error: 'must be none or api-key' }).optional(),
  TRUST_PROXY: checked(faultOfProxies)
    .transform((value) => (isCount(value) ? Number(value) : value.split(',').map((part) => part.trim())))
    .default(0),
  CORS_ORIGINS: checked(faultOfOrigins)
    .transform((value) => value.split(',').map((origin) => origin.trim()))
    .optional(),
  PUBLIC_URL: z
    .string()
    .refine((value) => isUrl(value, ['https:', 'http:']) && !/[?#@]/.test(value), {
      error:
        'must be the address that clients use, such as https://numbers.example.com, without a user, a query or a #',
    })
    .transform((value) => value.replace(/\/+$/, ''))
    .optional(),
  CONTACT: z
    .union([z.email(), z.url({ protocol: /^https?$/ })], { error: 'must be an e-mail address or an https:// address' })
    .optional(),
  REQUEST_TIMEOUT_SECONDS: wholeNumber(1, 60).default(5),
  MAX_REQUESTS_IN_FLIGHT: wholeNumber(1, 100_000).default(256),
  MAX_CONNECTIONS: wholeNumber(1, 1_000_000).default(2000),
  DATABASE_CONNECTIONS: wholeNumber(1, 1000).default(10),
  MAX_REPLICA_LAG_SECONDS: wholeNumber(0, 86_400).default(30),
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

/** The service can't run with these settings; the message has a line for each thing that has to change. */
export class ConfigError extends Error {}

/**
 * Reads the settings; an empty variable counts as unset.
 * @throws {ConfigError} naming every variable that is wrong
 */
export function readConfig(environment: NodeJS.ProcessEnv): Config {
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== ''));
  if (given.DATABASE_URL) given.DATABASE_URL = withEnvironment(given.DATABASE_URL, given);
  const result = settings.safeParse(given);
  if (result.success) return result.data;
  throw new ConfigError(result.error.issues.map(({ path, message }) => `${path.join('.')} ${message}`).join('\n'));
}

/** Names shorter than this resemble others by coincidence, as HOME does HOST and PATH does PORT. */
const TELLING_LENGTH = 8;
const MAX_SLIPS = 3;

/** A line for each variable that is not a setting but is probably a misspelling of one that is not set. */
export function misspelledSettings(environment: NodeJS.ProcessEnv): string[] {
  const unset = settingNames.filter((name) => !environment[name]);
  return Object.keys(environment).flatMap((name) => {
    if (!environment[name] || settingNames.includes(name)) return [];
    const meant = nearest(
      name,
      unset.filter((each) => each.length >= TELLING_LENGTH || plain(each) === plain(name)),
      MAX_SLIPS,
    );
    return meant ? [`${name} is not a setting and has no effect; did you mean ${meant}?`] : [];
  });
}

function isUrl(text: string, protocols: string[]): boolean {
  return URL.canParse(text) && protocols.includes(new URL(text).protocol);
}

const PROXY_RANGES = ['loopback', 'linklocal', 'uniquelocal'];

/** What is wrong with CORS_ORIGINS: browsers send an origin in this form only, and compare it letter by letter. */
function faultOfOrigins(value: string): string | undefined {
  const wrong = value
    .split(',')
    .map((part) => part.trim())
    .find((part) => !isUrl(part, ['https:', 'http:']) || new URL(part).origin !== part);
  return wrong === undefined
    ? undefined
    : `must be origins such as https://app.example.com, separated by commas, not ${wrong}`;
}

/** What is wrong with TRUST_PROXY: Express, which uses the same library, would fail on it or misread it. */
function faultOfProxies(value: string): string | undefined {
  if (isCount(value)) return undefined;
  const parts = value.split(',').map((part) => part.trim());
  const wrong = parts.find((part) => {
    if (PROXY_RANGES.includes(part)) return false;
    // The library reads 1 as 0.0.0.1.
    if (isIP(part.split('/')[0] ?? '') === 0) return true;
    try {
      compile(part);
      return false;
    } catch {
      return true;
    }
  });
  if (wrong === undefined) return undefined;
  return `must be the number of proxies in front, or their addresses or subnets separated by commas, such as 10.0.0.0/8; ${JSON.stringify(wrong)} is neither`;
}

function isCount(value: string): boolean {
  return /^[0-9]{1,3}$/.test(value);
}
