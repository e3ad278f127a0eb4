/** `config` prints what the other commands would use. */
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../../src/config/config.js';
import { runProgram } from '../../support/command.js';

/** Runs `config`, and returns its lines as an environment. */
async function printed(environment: Record<string, string>): Promise<Record<string, string>> {
  const { code, stdout, stderr } = await runProgram(['config'], '', { environment });
  expect([code, stderr]).toEqual([0, '']);
  return Object.fromEntries(
    stdout
      .split('\n')
      .filter(Boolean)
      .map((line) => /^([A-Z_]+)=(.*)$/.exec(line)?.slice(1) ?? []),
  );
}

describe('config', () => {
  it('prints every setting, with its default if it is not set', async () => {
    const settings = await printed({ LOG_LEVEL: 'info' });
    expect(Object.keys(settings)).toEqual(Object.keys(readConfig({})));
    expect(readConfig(settings)).toEqual(readConfig({}));
    expect(settings).toMatchObject({ PORT: '3000', AUTH: 'none', DATABASE_URL: '' });
  });

  it('prints settings that mean the same as those given, with secrets hidden', async () => {
    const given = {
      ...{
        HOST: '0.0.0.0',
        LOG_LEVEL: 'debug',
        AUTH: 'api-key',
        TRUST_PROXY: '10.0.0.0/8, ::1',
        CORS_ORIGINS: 'https://a.example',
      },
      DATABASE_URL: 'postgres://user:hidden:1@[::1]:5433/numbers?sslmode=require&password=hidden%202&prepare=false',
      REDIS_URL: 'rediss+sentinel://:hidden3@first,second:26380/name?sentinelPassword=hidden4&sentinelUsername=user',
    };
    const settings = await printed(given);
    const { DATABASE_URL, REDIS_URL, ...others } = readConfig(settings);
    expect(readConfig(given)).toMatchObject(others);
    expect(DATABASE_URL).toBe('postgres://user:***@[::1]:5433/numbers?sslmode=require&password=***&prepare=false');
    expect(REDIS_URL).toBe('rediss+sentinel://:***@first,second:26380/name?sentinelPassword=***&sentinelUsername=user');
  });

  it('exits with 1 and names each wrong setting', async () => {
    const { code, stdout, stderr } = await runProgram(['config'], '', { environment: { PORT: 'http', AUTH: 'yes' } });
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/^PORT must be .*\nAUTH must be .*\n$/);
  });
});
