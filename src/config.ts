/** The settings: environment variables, read once at the start. */
import { isIP } from 'node:net';
import { customCleanEnv, makeExactValidator } from 'envalid';
import { compile } from 'proxy-addr';
import { faultOfAddress } from './database/address.js';
import { isLoopback } from './http/loopback.js';
import { abridged, quoted } from './messages/shorten.js';
import { nearest, plain } from './messages/suggestion.js';
import { faultOfRedisAddress } from './rateLimit/redisAddress.js';
import { UserError } from './userError.js';

/** A setting whose text is valid unless `faultOf` returns what it must be instead, and which then means `read(text)`. */
function checked<T>(faultOf: (text: string) => string | undefined, read: (text: string) => T) {
  return makeExactValidator<T>((text) => {
    const fault = faultOf(text);
    if (fault) throw new Error(fault);
    return read(text);
  });
}

const text = checked(() => undefined, String);

const wholeNumber = (least: number, most: number) =>
  checked(
    (value) =>
      /^[0-9]+$/.test(value) && Number(value) >= least && Number(value) <= most
        ? undefined
        : `must be a whole number from ${least} to ${most}`,
    Number,
  );

const oneOf = <T extends string>(...values: T[]) =>
  checked(
    (value) =>
      values.includes(value as T) ? undefined : `must be ${values.slice(0, -1).join(', ')} or ${values.at(-1)}`,
    (value) => value as T,
  );

const list = (value: string) => value.split(',').map((part) => part.trim());

const variables = {
  PORT: wholeNumber(0, 65_535)({ default: 3000 }),
  HOST: text({ default: '127.0.0.1' }),
  DATABASE_URL: checked(faultOfAddress, String)({ default: undefined }),
  REDIS_URL: checked(faultOfRedisAddress, String)({ default: undefined }),
  RATE_LIMIT_PER_SECOND: wholeNumber(0, 1_000_000)({ default: 10 }),
  AUTH: oneOf('none', 'api-key')({ default: undefined }),
  TRUST_PROXY: checked(faultOfProxies, (value) => (isCount(value) ? Number(value) : list(value)))({ default: 0 }),
  CORS_ORIGINS: checked(faultOfOrigins, list)({ default: undefined }),
  PUBLIC_URL: checked(faultOfPublicUrl, (value) => new URL(value).href.replace(/\/+$/, ''))({ default: undefined }),
  CONTACT: checked(faultOfContact, String)({ default: undefined }),
  REQUEST_TIMEOUT_SECONDS: wholeNumber(1, 60)({ default: 5 }),
  MAX_REQUESTS_IN_FLIGHT: wholeNumber(1, 100_000)({ default: 256 }),
  MAX_CONNECTIONS: wholeNumber(1, 1_000_000)({ default: 2000 }),
  KEEP_ALIVE_SECONDS: wholeNumber(1, 86_400)({ default: 75 }),
  DATABASE_CONNECTIONS: wholeNumber(1, 1000)({ default: 10 }),
  DRAIN_SECONDS: wholeNumber(0, 60)({ default: 2 }),
  METRICS_PORT: wholeNumber(0, 65_535)({ default: undefined }),
  METRICS_HOST: text({ default: '127.0.0.1' }),
  LOG_LEVEL: oneOf('silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace')({ default: 'info' }),
};

/** The names of all settings. */
export const settingNames = Object.keys(variables);

export type Config = ReturnType<typeof readConfig>;

/**
 * Reads the settings; an empty variable counts as unset.
 * @throws {UserError} naming every variable that is wrong
 */
export function readConfig(environment: NodeJS.ProcessEnv) {
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== ''));
  const faults: string[] = [];
  const read = customCleanEnv(given, variables, (cleaned) => cleaned, {
    reporter({ errors }) {
      for (const [name, error] of Object.entries(errors)) {
        faults.push(`${name} ${error?.message}${isServiceLink(given[name]) ? `; ${originOfServiceLink(name)}` : ''}`);
      }
    },
  });
  if (given.AUTH === undefined && !isLoopback(read.HOST)) {
    faults.push(
      `AUTH must be chosen where HOST (${abridged(read.HOST)}) can be reached from other machines: api-key, or none to let anyone in`,
    );
  }
  if (faults.length > 0) throw new UserError(faults.join('\n'));
  return { ...read, AUTH: read.AUTH ?? 'none' };
}

/** Names shorter than this resemble others by coincidence, as HOME does HOST and PATH does PORT. */
const TELLING_LENGTH = 8;
const MAX_SLIPS = 3;

/** What other services call a setting, too unlike ours to be taken for a misspelling. */
const SYNONYMS: Record<string, string> = {
  AUTHENTICATION: 'AUTH',
  DB_URL: 'DATABASE_URL',
  RATE_LIMIT: 'RATE_LIMIT_PER_SECOND',
  TRUST_PROXIES: 'TRUST_PROXY',
};

/** A line for each variable that is not a setting but is probably a misspelling of one that is not set. */
export function misspelledSettings(environment: NodeJS.ProcessEnv): string[] {
  const unset = settingNames.filter((name) => !environment[name]);
  return Object.keys(environment).flatMap((name) => {
    if (!environment[name] || settingNames.includes(name) || isServiceLink(environment[name])) return [];
    const likely = unset.filter(
      (each) => plain(each) === plain(name) || (each.length >= TELLING_LENGTH && hasSimilarWords(name, each)),
    );
    const meant = unset.find((each) => each === SYNONYMS[name]) ?? nearest(name, likely, MAX_SLIPS);
    return meant ? [`${name} is not a setting and has no effect; did you mean ${meant}?`] : [];
  });
}

/** Whether each word of `name` resembles that of `setting`: METRICS_PATH is no misspelling of METRICS_PORT. */
function hasSimilarWords(name: string, setting: string): boolean {
  const [words, expected] = [name.split('_'), setting.split('_')];
  const maxSlips = (word: string) => Math.max(1, Math.round(word.length / 3));
  return (
    words.length === expected.length &&
    expected.every((word, index) => nearest(words[index] ?? '', [word], maxSlips(word)) === word)
  );
}

/** Whether Kubernetes set the variable to the address of a Service, such as `tcp://10.96.0.7:9464`. */
function isServiceLink(value = ''): boolean {
  return /^(tcp|udp|sctp):\/\//.test(value);
}

function originOfServiceLink(name: string): string {
  const service = name
    .replace(/_PORT$/, '')
    .toLowerCase()
    .replaceAll('_', '-');
  return `Kubernetes sets it for a Service named ${JSON.stringify(service)}: set enableServiceLinks: false in the pod's spec`;
}

function isUrl(text: string, protocols: string[]): boolean {
  return URL.canParse(text) && protocols.includes(new URL(text).protocol);
}

/** What is wrong with PUBLIC_URL. */
function faultOfPublicUrl(value: string): string | undefined {
  if (isUrl(value, ['https:', 'http:']) && !/[?#@]/.test(value)) return undefined;
  return 'must be the address that clients use, such as https://numbers.example.com, without a user, a query or a #';
}

/** Returns the path that a proxy puts in front of the service's own, such as `/telephony`; empty if PUBLIC_URL has none. */
export function publicPath({ PUBLIC_URL }: Partial<Pick<Config, 'PUBLIC_URL'>>): string {
  return PUBLIC_URL ? new URL(PUBLIC_URL).pathname.replace(/\/$/, '') : '';
}

/** What is wrong with CONTACT. */
function faultOfContact(value: string): string | undefined {
  if (/^[^\s@]+@[^\s@]+\.[^\s@]+$/.test(value) || isUrl(value, ['https:', 'http:'])) return undefined;
  return 'must be an e-mail address or an https:// address';
}

const PROXY_RANGES = ['loopback', 'linklocal', 'uniquelocal'];

/** What is wrong with CORS_ORIGINS: browsers send an origin in this form only, and compare it letter by letter. */
function faultOfOrigins(value: string): string | undefined {
  const wrong = list(value).find((part) => !isUrl(part, ['https:', 'http:']) || new URL(part).origin !== part);
  return wrong === undefined
    ? undefined
    : `must be origins such as https://app.example.com, separated by commas, not ${quoted(wrong)}`;
}

/** What is wrong with TRUST_PROXY: Express, which uses the same library, would fail on it or misread it. */
function faultOfProxies(value: string): string | undefined {
  if (isCount(value)) return undefined;
  const wrong = list(value).find((part) => {
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
  return `must be the number of proxies in front, or their addresses or subnets separated by commas, such as 10.0.0.0/8; ${quoted(wrong)} is neither`;
}

function isCount(value: string): boolean {
  return /^[0-9]{1,3}$/.test(value);
}
