import { describe, expect, it } from 'vitest';
import { ConfigError, readConfig } from '../src/config.js';

describe('the settings', () => {
  it('have the defaults of the documentation', () => {
    expect(readConfig({})).toEqual({
      PORT: 3000,
      HOST: '127.0.0.1',
      RATE_LIMIT_PER_SECOND: 10,
      AUTH: 'none',
      TRUST_PROXY: 0,
      REQUEST_TIMEOUT_SECONDS: 5,
      MAX_REQUESTS_IN_FLIGHT: 256,
      MAX_CONNECTIONS: 2000,
      DATABASE_CONNECTIONS: 10,
      DRAIN_SECONDS: 2,
      METRICS_HOST: '127.0.0.1',
      LOG_LEVEL: 'info',
    });
  });

  it('take an empty variable for an unset one', () => {
    expect(readConfig({ PORT: '', DATABASE_URL: '' })).toEqual(readConfig({}));
  });

  it('take several hosts in DATABASE_URL', () => {
    const DATABASE_URL = 'postgres://user:secret@first:5432,[::1]:5433,third/numbers?sslmode=require';
    expect(readConfig({ DATABASE_URL }).DATABASE_URL).toBe(DATABASE_URL);
  });

  const wrong: [string, Record<string, string>][] = [
    ['PORT', { PORT: '70000' }],
    ['PORT', { PORT: 'http' }],
    ['RATE_LIMIT_PER_SECOND', { RATE_LIMIT_PER_SECOND: '-1' }],
    ['DATABASE_URL', { DATABASE_URL: 'localhost:5432' }],
    ['DATABASE_URL', { DATABASE_URL: 'postgres://first:5432,second:port/numbers' }],
    ['REQUEST_TIMEOUT_SECONDS', { REQUEST_TIMEOUT_SECONDS: '0' }],
    ['MAX_REQUESTS_IN_FLIGHT', { MAX_REQUESTS_IN_FLIGHT: 'many' }],
    ['METRICS_PORT', { METRICS_PORT: '-1' }],
    ['REDIS_URL', { REDIS_URL: 'http://127.0.0.1' }],
    ['AUTH', { AUTH: 'yes' }],
    ['TRUST_PROXY', { TRUST_PROXY: 'true' }],
    ['LOG_LEVEL', { LOG_LEVEL: 'loud' }],
    ['AUTH', { HOST: '0.0.0.0' }],
    ['AUTH', { HOST: '::' }],
  ];
  it.each(wrong)('a wrong %s stops the start and is named: %o', (name, environment) => {
    expect(() => readConfig(environment)).toThrow(ConfigError);
    expect(() => readConfig(environment)).toThrow(new RegExp(`^${name} must be `));
  });

  it('every wrong one is named', () => {
    expect(() => readConfig({ PORT: 'x', AUTH: 'y' })).toThrow(/PORT.*\nAUTH/);
  });

  it.each(['none', 'api-key'])('any address may be listened on with AUTH=%s chosen', (AUTH) => {
    expect(readConfig({ HOST: '0.0.0.0', AUTH }).AUTH).toBe(AUTH);
  });

  it.each(['127.0.0.1', '127.1.2.3', '::1', 'localhost'])('%s is a loopback address', (HOST) => {
    expect(readConfig({ HOST }).AUTH).toBe('none');
  });
});
