/**
 * The alerts and the dashboard against what an instance exports: by promtool, and by a Prometheus that scrapes an instance
 * which runs with the settings of the Kubernetes manifest. There a minute is a second: every time in the configuration and
 * the rules is divided by 60.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parser } from '@prometheus-io/lezer-promql';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { closeDatabase, openDatabase } from '../../src/database/connect.js';
import { createApiKey } from '../../src/keys/keys.js';
import { environmentOf, resource } from '../support/manifest.js';
import { freePort, isListening } from '../support/port.js';
import { type PostgresServer, startPostgres } from '../support/postgresServer.js';
import { isInstalled, run } from '../support/programs.js';
import { hasRedis, startRedis, type TestRedis } from '../support/redis.js';
import { until } from '../support/until.js';

interface Rule {
  alert: string;
  expr: string;
  annotations: { runbook: string };
}
interface RuleTest {
  alertname: string;
  exp_alerts?: unknown[];
}

const read = (file: string) => readFileSync(join('deploy', file), 'utf8');
const rules: Rule[] = parse(read('prometheus/alerts.yaml')).groups.flatMap((group: { rules: Rule[] }) => group.rules);
const ruleTests: RuleTest[] = parse(read('prometheus/alerts.test.yaml')).tests.flatMap(
  (test: { alert_rule_test: RuleTest[] }) => test.alert_rule_test,
);
/** With the variables of Grafana filled in. */
const panels: { title: string; targets: { expr: string }[] }[] = JSON.parse(
  read('grafana/dashboard.json')
    .replaceAll('$__rate_interval', '4s')
    .replaceAll('$job', 'branded-phone-numbers')
    .replaceAll('$instance', '.*'),
).panels;
const hasPrometheus = isInstalled('prometheus') && isInstalled('promtool');

describe('every alert', () => {
  it.each(rules.map(({ alert }) => alert))('%s is tested where it fires and where it stays quiet', (alert) => {
    const counts = ruleTests
      .filter(({ alertname }) => alertname === alert)
      .map(({ exp_alerts = [] }) => exp_alerts.length);
    expect(counts).toContain(0);
    expect(counts.some((count) => count > 0)).toBe(true);
  });

  it.each(rules)('$alert has its entry in the runbook', ({ annotations }) => {
    expect(readFileSync('docs/operations.md', 'utf8')).toContain(`- **${annotations.runbook}.** `);
  });

  it.skipIf(!hasPrometheus)('fires and stays quiet as its tests say', async () => {
    const { status, output } = await run('promtool', ['test', 'rules', 'deploy/prometheus/alerts.test.yaml']);
    expect(status, output).toBe(0);
  });
});

describe.skipIf(!hasPrometheus || !hasRedis)('a Prometheus that scrapes an instance', () => {
  let folder: string;
  let postgres: PostgresServer;
  let redis: TestRedis;
  let instance: ChildProcess;
  let prometheus: ChildProcess;
  let prometheusUrl: string;
  let traffic: NodeJS.Timeout;
  const ports = { api: 0, metrics: 0 };

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-deploy-'));
    [postgres, redis] = await Promise.all([startPostgres(), startRedis()]);
    [ports.api, ports.metrics] = [await freePort(), await freePort()];
    instance = spawn(process.execPath, ['--import', 'tsx', 'src/main.ts', 'serve'], {
      env: {
        ...process.env,
        ...environmentOf('Deployment'),
        HOST: '127.0.0.1',
        PORT: String(ports.api),
        METRICS_HOST: '127.0.0.1',
        METRICS_PORT: String(ports.metrics),
        LOG_LEVEL: 'fatal',
        DATABASE_URL: postgres.url,
        REDIS_URL: redis.url,
      },
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    const isReady = () =>
      fetch(`http://127.0.0.1:${ports.metrics}/readyz`).then(
        ({ ok }) => ok,
        () => false,
      );
    await until(isReady, 'the instance is ready', 30_000);

    const database = openDatabase(postgres.url);
    const { key } = await createApiKey(database, 'traffic');
    await closeDatabase(database);
    // Less than the limit.
    traffic = setInterval(() => {
      fetch(`http://127.0.0.1:${ports.api}/v1/brandedPhoneNumbers`, { headers: { Authorization: key } }).then(
        (response) => response.text(),
        () => {},
      );
    }, 150);

    const configuration = inSeconds(read('prometheus/prometheus.yaml')).replace('9464', String(ports.metrics));
    await writeFile(join(folder, 'prometheus.yaml'), configuration);
    await writeFile(join(folder, 'alerts.yaml'), inSeconds(read('prometheus/alerts.yaml')));
    const port = await freePort();
    prometheusUrl = `http://127.0.0.1:${port}`;
    const options = [
      `--config.file=${join(folder, 'prometheus.yaml')}`,
      `--storage.tsdb.path=${folder}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=error',
    ];
    prometheus = spawn('prometheus', options, { stdio: ['ignore', 'ignore', 'inherit'] });
    await isListening(port, 30_000);
  });

  afterAll(async () => {
    clearInterval(traffic);
    await Promise.all([instance, prometheus].map(end));
    await Promise.all([redis?.kill(), postgres?.remove()]);
    await rm(folder, { recursive: true, force: true });
  });

  it('finds the probes of the Kubernetes manifest answered', async () => {
    const [container] = resource('Deployment').spec.template.spec.containers;
    for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe']) {
      const response = await fetch(`http://127.0.0.1:${ports.metrics}${container[probe].httpGet.path}`);
      expect([probe, response.status]).toEqual([probe, 200]);
    }
  });

  it('fires nothing for the limit’s store or the database while both are there', async () => {
    await sleep(6000);
    const states = await alerts();
    expect(states).not.toHaveProperty('BrandedPhoneNumbersLimitStoreDown');
    expect(states).not.toHaveProperty('BrandedPhoneNumbersUnavailable');
  });

  const selectors = [...new Set([...rules, ...panels.flatMap(({ targets }) => targets)].flatMap(selectorsOf))];
  it.each(selectors)('finds what is named in alerts and dashboard: %s', async (selector) => {
    expect(await query(`count(${selector})`)).toHaveLength(1);
  });

  it.each(panels)('has something to show in the panel $title while all is well', async ({ targets }) => {
    for (const { expr } of targets) expect(await query(expr)).not.toHaveLength(0);
  });

  it('finds nothing to complain about in the metrics', async () => {
    const input = await (await fetch(`http://127.0.0.1:${ports.metrics}/metrics`)).text();
    expect(spawnSync('promtool', ['check', 'metrics'], { input, encoding: 'utf8' })).toMatchObject({
      status: 0,
      stderr: '',
    });
  });

  it('fires for a Redis that is gone, after a while, until it is back', async () => {
    await redis.kill();
    await untilAlertIs('BrandedPhoneNumbersLimitStoreDown', 'pending');
    await untilAlertIs('BrandedPhoneNumbersLimitStoreDown', 'firing');
    await redis.start();
    await untilAlertIs('BrandedPhoneNumbersLimitStoreDown', undefined);
  });

  it('fires for a PostgreSQL that is gone, after a while, until it is back', async () => {
    await postgres.stop();
    await untilAlertIs('BrandedPhoneNumbersUnavailable', 'pending');
    await untilAlertIs('BrandedPhoneNumbersUnavailable', 'firing');
    await postgres.start();
    await untilAlertIs('BrandedPhoneNumbersUnavailable', undefined);
  });

  it('fires for an instance that is gone', async () => {
    await end(instance);
    await untilAlertIs('BrandedPhoneNumbersInstanceDown', 'firing');
    await untilAlertIs('BrandedPhoneNumbersNoInstance', 'firing');
  });

  async function ask<T>(path: string): Promise<T> {
    const response = await fetch(`${prometheusUrl}/api/v1/${path}`);
    const outcome = (await response.json()) as { status: string; error?: string; data: T };
    if (outcome.status !== 'success') throw new Error(`${path}: ${outcome.error}`);
    return outcome.data;
  }

  /** The series that an expression finds now. */
  async function query(expression: string): Promise<unknown[]> {
    return (await ask<{ result: unknown[] }>(`query?query=${encodeURIComponent(expression)}`)).result;
  }

  /** The state of each alert that is pending or firing. */
  async function alerts(): Promise<Record<string, string>> {
    const { alerts: found } = await ask<{ alerts: { labels: { alertname: string }; state: string }[] }>('alerts');
    return Object.fromEntries(found.map(({ labels, state }) => [labels.alertname, state]));
  }

  async function untilAlertIs(alert: string, state: string | undefined): Promise<void> {
    let states: Record<string, string> = {};
    for (const limit = Date.now() + 30_000; Date.now() < limit; await sleep(50)) {
      states = await alerts();
      if (states[alert] === state) return;
    }
    throw new Error(`${alert} does not become ${state ?? 'quiet'}: ${JSON.stringify(states)}`);
  }
});

/** Times such as `5m` and `15s`, a sixtieth of them. */
function inSeconds(text: string): string {
  return text.replace(/\b(\d+)([ms])\b/g, (_all, count, unit) =>
    unit === 'm' ? `${count}s` : `${(Number(count) * 1000) / 60}ms`,
  );
}

/** The metrics that an expression reads, each with its labels: `up{job="…"}`. */
function selectorsOf({ expr }: { expr: string }): string[] {
  const found: string[] = [];
  parser.parse(expr).iterate({
    enter({ type, from, to }) {
      if (type.isError) throw new Error(`not PromQL: ${expr}`);
      if (type.name === 'VectorSelector') found.push(expr.slice(from, to).replace(/\s+/g, ' '));
    },
  });
  return found;
}

async function end(child: ChildProcess | undefined): Promise<void> {
  if (!child || child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGKILL');
  await once(child, 'exit');
}
