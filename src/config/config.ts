/** The settings: environment variables, read once at startup. A validator's error continues the variable's name. */
import { isIP } from 'node:net';
import { customCleanEnv, makeExactValidator, str } from 'envalid';
import { compile } from 'proxy-addr';
import { cut, escapeHidden, quote } from '../messages/shown.js';
import { UserError } from '../userError.js';
import { addressOf } from './databaseAddress.js';
import { parseRedisUrl } from './redisAddress.js';

const wholeNumber = (min: number, max: number) =>
  makeExactValidator<number>((value) => {
    if (/^[0-9]+$/.test(value) && Number(value) >= min && Number(value) <= max) return Number(value);
    throw new Error(`must be a whole number from ${min} to ${max}`);
  });

const oneOf = <T extends string>(...values: T[]) =>
  makeExactValidator<T>((value) => {
    const known = values.find((candidate) => candidate === value);
    if (known === undefined) throw new Error(`must be ${values.slice(0, -1).join(', ')} or ${values.at(-1)}`);
    return known;
  });

const address = (parse: (url: string) => unknown) =>
  makeExactValidator<string>((value) => {
    parse(value);
    return value;
  });

const trustedProxies = makeExactValidator<number | string[]>((value) => {
  if (/^[0-9]{1,3}$/.test(value)) return Number(value);
  const proxies = splitList(value);
  const invalid = proxies.find((proxy) => !isProxy(proxy));
  if (invalid === undefined) return proxies;
  throw new Error(
    `must be the number of proxies in front, or their addresses or subnets separated by commas, such as 10.0.0.0/8; ${quote(invalid)} is neither`,
  );
});

function isProxy(text: string): boolean {
  if (['loopback', 'linklocal', 'uniquelocal'].includes(text)) return true;
  // No proxy has these addresses. Express's library, which is used below, would read 1 as 0.0.0.1.
  if (['0.0.0.0', '::'].includes(text) || isIP(text.split('/')[0] ?? '') === 0) return false;
  try {
    compile(text);
    return true;
  } catch {
    return false;
  }
}

/** Origins exactly as browsers send them, because they are compared as text. */
const origins = makeExactValidator<string[]>((value) => {
  const list = splitList(value);
  const invalid = list.find((origin) => !isAddress(origin, 'http:', 'https:') || new URL(origin).origin !== origin);
  if (invalid === undefined) return list;
  throw new Error(
    `must be origins as browsers send them, such as https://app.example.com, separated by commas; ${quote(invalid)} matches none: write each in lower case, without *, a path or a default port`,
  );
});

const publicUrl = makeExactValidator<string>((value) => {
  if (isAddress(value, 'http:', 'https:') && !/[?#@*]/.test(value)) return new URL(value).href.replace(/\/+$/, '');
  throw new Error(
    'must be the address that clients use, such as https://numbers.example.com, without a user, a query, a # or a *',
  );
});

const httpsAddress = makeExactValidator<string>((value) => {
  if (isAddress(value, 'https:')) return value;
  throw new Error('must be an https:// address');
});

const contact = makeExactValidator<string>((value) => {
  if (/^[^\s@]+@[^\s@]+\.[^\s@]+$/.test(value) || isAddress(value, 'https:')) return value;
  throw new Error('must be an e-mail address or an https:// address');
});

const isLoopbackAddress = compile('loopback');

/** Returns whether `host` is `localhost`, or an address of 127.0.0.0/8 or ::1, without brackets. */
export function isLoopback(host: string): boolean {
  return host.toLowerCase() === 'localhost' || (isIP(host) > 0 && isLoopbackAddress(host, 0));
}

function splitList(value: string): string[] {
  return value.split(',').map((part) => part.trim());
}

/** Returns whether a text is an address whose scheme is one of these, such as `https:`, and whose host can exist. */
function isAddress(text: string, ...schemes: string[]): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, hostname } = new URL(text);
  // URL accepts *.example.com, .example.com and the like.
  return schemes.includes(protocol) && /^(\[.*\]|[\w-]+(\.[\w-]+)*\.?)$/.test(hostname);
}

const variables = {
  PORT: wholeNumber(0, 65_535)({ default: 3000 }),
  HOST: str({ default: '127.0.0.1' }),
  DATABASE_URL: address(addressOf)({ default: undefined }),
  REDIS_URL: address(parseRedisUrl)({ default: undefined }),
  RATE_LIMIT_PER_SECOND: wholeNumber(0, 1_000_000)({ default: 10 }),
  AUTH: oneOf('none', 'api-key')({ default: undefined }),
  TRUST_PROXY: trustedProxies({ default: 0 }),
  CORS_ORIGINS: origins({ default: undefined }),
  PUBLIC_URL: publicUrl({ default: undefined }),
  CONTACT: contact({ default: undefined }),
  TERMS_URL: httpsAddress({ default: undefined }),
  REQUEST_TIMEOUT_SECONDS: wholeNumber(1, 60)({ default: 5 }),
  MAX_CONNECTIONS: wholeNumber(1, 1_000_000)({ default: 2000 }),
  KEEP_ALIVE_SECONDS: wholeNumber(1, 86_400)({ default: 75 }),
  DATABASE_CONNECTIONS: wholeNumber(1, 1000)({ default: 4 }),
  DRAIN_SECONDS: wholeNumber(0, 60)({ default: 2 }),
  METRICS_PORT: wholeNumber(0, 65_535)({ default: undefined }),
  METRICS_HOST: str({ default: '127.0.0.1' }),
  LOG_LEVEL: oneOf('silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace')({ default: 'info' }),
};

export type Config = ReturnType<typeof readConfig>;

/**
 * Reads the settings from environment variables, without white space around them; an empty variable counts as unset.
 * @throws {UserError} with a line for each invalid variable
 */
export function readConfig(environment: NodeJS.ProcessEnv) {
  const given: Record<string, string> = {};
  for (const [name, value = ''] of Object.entries(environment)) if (value.trim() !== '') given[name] = value.trim();
  const faults: string[] = [];
  const read = customCleanEnv(given, variables, (cleaned) => cleaned, {
    reporter({ errors }) {
      for (const [name, error] of Object.entries(errors)) {
        faults.push(`${name} ${error?.message}${serviceLinkAdvice(name, given[name])}`);
      }
    },
  });
  if (given.AUTH === undefined && !isLoopback(read.HOST)) {
    faults.push(
      `AUTH must be set, because other machines can reach HOST (${cut(escapeHidden(read.HOST))}): api-key, or none to let anyone in`,
    );
  }
  if (given.METRICS_PORT === undefined && !isLoopback(read.METRICS_HOST)) {
    faults.push('METRICS_HOST must be left out, or METRICS_PORT set as well: without a port, there are no metrics');
  }
  if (faults.length > 0) throw new UserError(faults.join('\n'));
  return { ...read, AUTH: read.AUTH ?? 'none' };
}

/** Returns the settings with the passwords in addresses replaced by `***`. */
export function withoutSecrets(config: Config): Config {
  return { ...config, DATABASE_URL: hidePasswords(config.DATABASE_URL), REDIS_URL: hidePasswords(config.REDIS_URL) };
}

/** Replaces the passwords in an address, of which an accepted one has no `?` or `@`. */
function hidePasswords(address: string | undefined): string | undefined {
  if (address === undefined) return undefined;
  const [server = '', query] = address.split('?');
  const parameters = new URLSearchParams(query);
  for (const name of parameters.keys()) if (/password/i.test(name)) parameters.set(name, '***');
  return escapeHidden(`${server.replace(/(:\/\/[^:@]*):.*@/s, '$1:***@')}${query ? `?${parameters}` : ''}`);
}

/** Returns advice if Kubernetes set the variable to the address of a Service, such as `tcp://10.96.0.7:9464`; else ''. */
function serviceLinkAdvice(name: string, value = ''): string {
  if (!/^(tcp|udp|sctp):\/\//.test(value)) return '';
  const service = name
    .replace(/_PORT$/, '')
    .toLowerCase()
    .replaceAll('_', '-');
  return `; Kubernetes sets it for a Service named ${JSON.stringify(service)}: set enableServiceLinks: false in the pod's spec`;
}

/** Returns the path of PUBLIC_URL, below which a proxy serves this service, such as `/telephony`; may be empty. */
export function publicPath({ PUBLIC_URL }: Pick<Config, 'PUBLIC_URL'>): string {
  return PUBLIC_URL ? new URL(PUBLIC_URL).pathname.replace(/\/$/, '') : '';
}

/** Returns whether only programs of this machine can use the service. */
export function isPrivate({ HOST, AUTH, TRUST_PROXY }: Pick<Config, 'HOST' | 'AUTH' | 'TRUST_PROXY'>): boolean {
  return isLoopback(HOST) && AUTH === 'none' && TRUST_PROXY === 0;
}
