/** The systemd unit: systemd's security rating, restarts and limits. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { environmentOf } from '../support/manifest.js';
import { isInstalled, outcomeOf } from '../support/programs.js';

/** The maximum time to stop, beyond DRAIN_SECONDS and REQUEST_TIMEOUT_SECONDS (docs/operations.md). */
const STOP_SECONDS = 3;
const UNIT = 'deploy/systemd/branded-phone-numbers.service';
const lines = readFileSync(UNIT, 'utf8').split('\n');

describe.skipIf(!isInstalled('systemd-analyze'))('the systemd unit', () => {
  it('restricts the service to an exposure of at most 3.0', async () => {
    const options = ['security', '--offline=yes', '--no-pager', '--threshold=30', UNIT];
    const { status, output } = await outcomeOf('systemd-analyze', options);
    expect(status, output).toBe(0);
  });

  it('starts it after PostgreSQL, and restarts it after any exit, without a limit', () => {
    expect(lines.slice(lines.indexOf('[Unit]'), lines.indexOf('[Service]'))).toEqual(
      expect.arrayContaining(['StartLimitIntervalSec=0', expect.stringMatching(/^After=.*\bpostgresql\.service\b/)]),
    );
    expect(lines).toEqual(expect.arrayContaining(['Restart=always', expect.stringMatching(/^RestartSec=\d+$/)]));
  });

  it('sets the heap that the image sets, and the sizing of docs/operations.md names', () => {
    const { NODE_OPTIONS } = environmentOf('Deployment');
    expect(lines).toContain(`Environment=NODE_OPTIONS=${NODE_OPTIONS}`);
    expect(readFileSync('docs/operations.md', 'utf8')).toContain(`\`NODE_OPTIONS=${NODE_OPTIONS}\``);
  });

  it('gives the service enough time to stop and enough file descriptors', () => {
    const numberOf = (name: string) => Number(lines.find((line) => line.startsWith(`${name}=`))?.split('=')[1]);
    const config = readConfig({});
    expect(numberOf('TimeoutStopSec')).toBeGreaterThan(
      config.DRAIN_SECONDS + config.REQUEST_TIMEOUT_SECONDS + STOP_SECONDS,
    );
    expect(numberOf('LimitNOFILE')).toBeGreaterThan(config.MAX_CONNECTIONS + 2 * config.DATABASE_CONNECTIONS + 200);
  });
});
