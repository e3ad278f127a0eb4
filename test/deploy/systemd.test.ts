/** The systemd unit, by systemd's own checks. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { isInstalled, run } from '../support/programs.js';

/** The service's longest stop, beside DRAIN_SECONDS and REQUEST_TIMEOUT_SECONDS (docs/operations.md). */
const STOP_SECONDS = 3;
const UNIT = 'deploy/systemd/branded-phone-numbers.service';

describe.skipIf(!isInstalled('systemd-analyze'))('the systemd unit', () => {
  it('lets the service do little else than its work: an exposure of at most 3.0', async () => {
    const options = ['security', '--offline=yes', '--no-pager', '--threshold=30', UNIT];
    const { status, output } = await run('systemd-analyze', options);
    expect(status, output).toBe(0);
  });

  it('starts it after PostgreSQL, and restarts it as often as it takes', () => {
    const lines = readFileSync(UNIT, 'utf8').split('\n');
    expect(lines.slice(lines.indexOf('[Unit]'), lines.indexOf('[Service]'))).toEqual(
      expect.arrayContaining(['StartLimitIntervalSec=0', expect.stringMatching(/^After=.*\bpostgresql\.service\b/)]),
    );
    expect(lines).toEqual(expect.arrayContaining(['Restart=on-failure', expect.stringMatching(/^RestartSec=\d+$/)]));
  });

  it('gives an instance enough time to stop, and files for its connections', () => {
    const unit = readFileSync(UNIT, 'utf8');
    const given = (name: string) => Number(unit.match(new RegExp(`^${name}=(\\d+)$`, 'm'))?.[1]);
    const config = readConfig({});
    expect(given('TimeoutStopSec')).toBeGreaterThan(
      config.DRAIN_SECONDS + config.REQUEST_TIMEOUT_SECONDS + STOP_SECONDS,
    );
    expect(given('LimitNOFILE')).toBeGreaterThan(config.MAX_CONNECTIONS + 2 * config.DATABASE_CONNECTIONS + 200);
  });
});
