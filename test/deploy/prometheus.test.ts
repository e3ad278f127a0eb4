/**
 * The alerts and the dashboard: checked by promtool, and evaluated by a Prometheus that scrapes an instance with the settings
 * of the Kubernetes manifest. For that Prometheus, all times in the configuration and the rules are divided by 60.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
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
import { endProcess } from '../support/process.js';
import { isInstalled, run } from '../support/programs.js';
import { hasRedis, startRedis, type TestRedis } from '../support/redis.js';
import { useTemporaryFolder } from '../support/temporaryFolder.js';
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
/** The panels of the dashboard, with Grafana's variables replaced. */
const panels: { title: string; targets: { expr: string }[] }[] = JSON.parse(
  read('grafana/dashboard.json')
    .replaceAll('$__rate_interval', '4s')
    .replaceAll('$job', 'branded-phone-numbers')
    .replaceAll('$instance', '.*'),
).panels;
const hasPrometheus = isInstalled('prometheus') && isInstalled('promtool');

describe('every alert', () => {
  it.each(rules.map(({ alert }) => alert))('%s has a test in which it fires and one in which it does not', (alert) => {
    const counts = ruleTests
      .filter(({ alertname }) => alertname === alert)
      .map(({ exp_alerts = [] }) => exp_alerts.length);
    expect(counts).toContain(0);
    expect(counts.some((count) => count > 0)).toBe(true);
  });

  it.each(rules)('$alert has an entry in the runbook', ({ annotations }) => {
    expect(readFileSync('docs/operations.md', 'utf8')).toContain(`\n### ${annotations.runbook}\n`);
  });

  it.skipIf(!hasPrometheus)('passes its tests', async () => {
    const { status, output } = await run('promtool', ['test', 'rules', 'deploy/prometheus/alerts.test.yaml']);
    expect(status, output).toBe(0);
  });
});

describe.skipIf(!hasPrometheus || !hasRedis)('a Prometheus that scrapes an instance', () => {
  const folder = useTemporaryFolder('branded-phone-numbers-deploy-');
  let postgres: PostgresServer;
  let redis: TestRedis;
  let instance: ChildProcess;
  let prometheus: ChildProcess;
  let prometheusUrl: string;
  let traffic: NodeJS.Timeout;
  const ports = { api: 0, metrics: 0 };

  beforeAll(async () => {
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
    const readiness = () => fetch(`http://127.0.0.1:${ports.metrics}/readyz`);
    const isReady = () =>
      readiness()
        .then(({ ok }) => ok)
        .catch(() => false);
    await until(isReady, 'the instance is ready', 30_000);

    const database = openDatabase(postgres.url);
    const { key } = await createApiKey(database, 'traffic');
    await closeDatabase(database);
    // Below the rate limit.
    traffic = setInterval(() => {
      fetch(`http://127.0.0.1:${ports.api}/v1/brandedPhoneNumbers`, { headers: { Authorization: key } }).then(
        (response) => response.text(),
        () => {},
      );
    }, 150);

    const configuration = inSeconds(read('prometheus/prometheus.yaml')).replace('9464', String(ports.metrics));
    await writeFile(join(folder.path, 'prometheus.yaml'), configuration);
    await writeFile(join(folder.path, 'alerts.yaml'), inSeconds(read('prometheus/alerts.yaml')));
    const port = await freePort();
    prometheusUrl = `http://127.0.0.1:${port}`;
    const options = [
      `--config.file=${join(folder.path, 'prometheus.yaml')}`,
      `--storage.tsdb.path=${folder.path}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=error',
    ];
    prometheus = spawn('prometheus', options, { stdio: ['ignore', 'ignore', 'inherit'] });
    await isListening(port, 30_000);
  });

  afterAll(async () => {
    clearInterval(traffic);
    await Promise.all([endProcess(instance), endProcess(prometheus), redis?.kill(), postgres?.remove()]);
  });

  it('has 200 as the response to each probe of the Kubernetes manifest', async () => {
    const [container] = resource('Deployment').spec.template.spec.containers;
    for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe']) {
      const response = await fetch(`http://127.0.0.1:${ports.metrics}${container[probe].httpGet.path}`);
      expect([probe, response.status]).toEqual([probe, 200]);
    }
  });

  it('fires no alert for the limit’s store or the database while both are up', async () => {
    await sleep(6000);
    const states = await alerts();
    expect(states).not.toHaveProperty('BrandedPhoneNumbersLimitStoreDown');
    expect(states).not.toHaveProperty('BrandedPhoneNumbersUnavailable');
  });

  const selectors = [...new Set([...rules, ...panels.flatMap(({ targets }) => targets)].flatMap(selectorsOf))];
  it.each(selectors)('finds the metric %s of the alerts and the dashboard', async (selector) => {
    expect(await query(`count(${selector})`)).toHaveLength(1);
  });

  it.each(panels)('has data for the panel $title', async ({ targets }) => {
    for (const { expr } of targets) expect(await query(expr)).not.toHaveLength(0);
  });

  it('scrapes metrics that promtool accepts', async () => {
    const input = await (await fetch(`http://127.0.0.1:${ports.metrics}/metrics`)).text();
    expect(spawnSync('promtool', ['check', 'metrics'], { input, encoding: 'utf8' })).toMatchObject({
      status: 0,
      stderr: '',
    });
  });

  const outages = {
    Redis: { alert: 'BrandedPhoneNumbersLimitStoreDown', stop: () => redis.kill(), start: () => redis.start() },
    PostgreSQL: { alert: 'BrandedPhoneNumbersUnavailable', stop: () => postgres.stop(), start: () => postgres.start() },
  };
  it.each(Object.entries(outages))(
    'fires after %s went down, until it is up',
    async (_name, { alert, stop, start }) => {
      await stop();
      await untilAlertIs(alert, 'pending');
      await untilAlertIs(alert, 'firing');
      await start();
      await untilAlertIs(alert, undefined);
    },
  );

  it('fires after an instance went down', async () => {
    await endProcess(instance);
    await untilAlertIs('BrandedPhoneNumbersInstanceDown', 'firing');
    await untilAlertIs('BrandedPhoneNumbersNoInstance', 'firing');
  });

  async function request<T>(path: string): Promise<T> {
    const response = await fetch(`${prometheusUrl}/api/v1/${path}`);
    const outcome = (await response.json()) as { status: string; error?: string; data: T };
    if (outcome.status !== 'success') throw new Error(`${path}: ${outcome.error}`);
    return outcome.data;
  }

  /** Returns the current result of an expression. */
  async function query(expression: string): Promise<unknown[]> {
    return (await request<{ result: unknown[] }>(`query?query=${encodeURIComponent(expression)}`)).result;
  }

  /** Returns the state of each alert that is pending or firing. */
  async function alerts(): Promise<Record<string, string>> {
    const { alerts: found } = await request<{ alerts: { labels: { alertname: string }; state: string }[] }>('alerts');
    return Object.fromEntries(found.map(({ labels, state }) => [labels.alertname, state]));
  }

  async function untilAlertIs(alert: string, state: string | undefined): Promise<void> {
    const isThere = async () => (await alerts())[alert] === state;
    await until(isThere, `${alert} is ${state ?? 'inactive'}`, 30_000);
  }
});

/** Divides times such as `5m` and `15s` by 60. */
function inSeconds(text: string): string {
  return text.replace(/\b(\d+)([ms])\b/g, (_all, count, unit) =>
    unit === 'm' ? `${count}s` : `${(Number(count) * 1000) / 60}ms`,
  );
}

/** Returns the metrics that an expression reads, with their labels: `up{job="…"}`. */
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
