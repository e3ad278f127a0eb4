/**
 * The alerts and the dashboard: checked by promtool, and evaluated by a Prometheus that scrapes an instance behind HAProxy,
 * with the settings of the Kubernetes manifest and of deploy/haproxy. For that Prometheus, all times in the rules are divided
 * by 20, and it scrapes every two seconds.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parser } from '@prometheus-io/lezer-promql';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { createApiKey } from '../../src/keys/keys.js';
import { connectTo } from '../support/connection.js';
import { closeDatabase, openDatabase } from '../support/database.js';
import { startHaproxy } from '../support/haproxy.js';
import { environmentOf, resource } from '../support/manifest.js';
import { claimNetwork, freePort, isListening } from '../support/port.js';
import { type PostgresServer, startPostgres } from '../support/postgresServer.js';
import { endProcess } from '../support/process.js';
import { isInstalled, outcomeOf } from '../support/programs.js';
import { hasRedis, startRedis, type TestRedis } from '../support/redis.js';
import { SERVE, type Server, startServer } from '../support/serverProcess.js';
import { useTemporaryFolder } from '../support/temporaryFolder.js';
import { holdPages } from '../support/unreadPages.js';
import { until } from '../support/until.js';

interface Rule {
  alert: string;
  expr: string;
  annotations: { runbook_url: string };
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
    .replaceAll('$__rate_interval', '10s')
    .replaceAll('$job', 'branded-phone-numbers')
    .replaceAll('$instance', '.*'),
).panels;
const hasPrometheus = isInstalled('prometheus') && isInstalled('promtool') && isInstalled('haproxy');

describe('every alert', () => {
  it.each(rules.map(({ alert }) => alert))('%s has a test in which it fires and one in which it does not', (alert) => {
    const counts = ruleTests
      .filter(({ alertname }) => alertname === alert)
      .map(({ exp_alerts = [] }) => exp_alerts.length);
    expect(counts).toContain(0);
    expect(counts.some((count) => count > 0)).toBe(true);
  });

  it.each(rules)('$alert leads to an entry of the runbook that says what to do', ({ annotations }) => {
    const [, runbook = ''] = /^## Runbook\n(.*?)^## /ms.exec(readFileSync('docs/operations.md', 'utf8')) ?? [];
    const anchorOf = (heading: string) => heading.toLowerCase().replaceAll(' ', '-');
    const entries = new Map(runbook.split(/^### /m).map((entry) => [anchorOf(entry.split('\n')[0] ?? ''), entry]));
    const [, anchor = ''] = /\/docs\/operations\.md#(.*)$/.exec(annotations.runbook_url) ?? [];
    expect(entries.get(anchor)).toMatch(/\*\*See:\*\*.*\*\*Means:\*\*.*\*\*Do:\*\*/s);
  });

  it('leads to the runbook at the address that the command of docs/operations.md enters', async () => {
    const [command = ''] = /^sed .*alerts\.yaml$/m.exec(readFileSync('docs/operations.md', 'utf8')) ?? [];
    const address = 'https://git.acme.test/numbers/blob/main';
    const written = command.replace('ADDRESS', address).replace('> alerts.yaml', '');
    const entered = parse((await outcomeOf('bash', ['-c', written])).output).groups[0].rules as Rule[];
    for (const [index, { annotations }] of entered.entries()) {
      const [, anchor] = rules[index]?.annotations.runbook_url.split('#') ?? [];
      expect(annotations.runbook_url).toBe(`${address}/docs/operations.md#${anchor}`);
    }
    expect(entered).toHaveLength(rules.length);
  });

  it.skipIf(!hasPrometheus)('passes its tests', async () => {
    const { status, output } = await outcomeOf('promtool', ['test', 'rules', 'deploy/prometheus/alerts.test.yaml']);
    expect(status, output).toBe(0);
  });
});

describe.skipIf(!hasPrometheus || !hasRedis)('a Prometheus that scrapes an instance', () => {
  const folder = useTemporaryFolder('branded-phone-numbers-deploy-');
  let postgres: PostgresServer;
  let redis: TestRedis;
  let instance: Server;
  let prometheus: ChildProcess;
  let prometheusUrl: string;
  let haproxy: Awaited<ReturnType<typeof startHaproxy>>;
  let traffic: NodeJS.Timeout;
  let key: string;
  let unreadKey: string;
  /** The latest response that clients got from HAProxy. */
  let latest = '';
  let metricsUrl: string;

  beforeAll(async () => {
    [postgres, redis] = await Promise.all([startPostgres(), startRedis()]);
    const network = await claimNetwork();
    metricsUrl = `http://${network}.1.1:9464`;
    instance = await startServer(SERVE, {
      ...environmentOf('Deployment'),
      ...{ HOST: `${network}.1.1`, PORT: '3000', METRICS_HOST: `${network}.1.1`, METRICS_PORT: '9464' },
      LOG_LEVEL: 'fatal',
      DATABASE_URL: postgres.url,
      REDIS_URL: redis.url,
    });

    const database = openDatabase(postgres.url);
    ({ key } = await createApiKey(database, 'traffic'));
    ({ key: unreadKey } = await createApiKey(database, 'reads nothing'));
    await createApiKey(database, 'expires', { expiresAt: new Date(Date.now() + 13 * 86_400_000) });
    await closeDatabase(database);
    haproxy = await startHaproxy(network, folder.path);
    // Below the rate limit.
    traffic = setInterval(async () => {
      ({ body: latest } = await haproxy.get('', 0, { Authorization: key }));
    }, 150);

    const configuration = read('prometheus/prometheus.yaml')
      .replace('127.0.0.1', `${network}.1.1`)
      .replace('scrape_interval: 15s', 'scrape_interval: 2s')
      .replace('evaluation_interval: 15s', 'evaluation_interval: 1s');
    await writeFile(join(folder.path, 'prometheus.yaml'), configuration);
    await writeFile(join(folder.path, 'alerts.yaml'), accelerated(read('prometheus/alerts.yaml')));
    const port = await freePort();
    prometheusUrl = `http://127.0.0.1:${port}`;
    const options = [
      `--config.file=${join(folder.path, 'prometheus.yaml')}`,
      `--storage.tsdb.path=${folder.path}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=error',
    ];
    prometheus = spawn('prometheus', options, { stdio: ['ignore', 'ignore', 'inherit'] });
    await isListening(port, { timeoutMs: 30_000 });
  });

  afterAll(async () => {
    clearInterval(traffic);
    await Promise.all([instance?.stop('SIGKILL'), haproxy?.stop(), endProcess(prometheus)]);
    await Promise.all([redis?.kill(), postgres?.remove()]);
  });

  it('has 200 as the response to each probe of the Kubernetes manifest', async () => {
    const [container] = resource('Deployment').spec.template.spec.containers;
    for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe']) {
      const response = await fetch(`${metricsUrl}${container[probe].httpGet.path}`);
      expect([probe, response.status]).toEqual([probe, 200]);
    }
  });

  it('fires no alert for the limit’s store or the database while both are up', async () => {
    const isScraped = () =>
      query('branded_phone_numbers_ready == 1').then(
        ({ length }) => length === 1,
        () => false,
      );
    await until(isScraped, 'the instance is scraped', 30_000);
    await sleep(10_000);
    const fired = Object.keys(await alerts());
    for (const alert of ['LimitStoreDown', 'NoInstanceReady', 'InstanceNotReady', 'ErrorsFast', 'ErrorsSlow']) {
      expect(fired).not.toContain(`BrandedPhoneNumbers${alert}`);
    }
  });

  const selectors = [...new Set([...rules, ...panels.flatMap(({ targets }) => targets)].flatMap(selectorsOf))];
  it.each(selectors)('finds the metric %s of the alerts and the dashboard', async (selector) => {
    expect(await query(`count(${selector})`)).toHaveLength(1);
  });

  it.each(panels)('has data for the panel $title', async ({ targets }) => {
    for (const { expr } of targets) expect(await query(expr)).not.toHaveLength(0);
  });

  it('scrapes metrics that promtool accepts', async () => {
    const input = await (await fetch(`${metricsUrl}/metrics`)).text();
    expect(spawnSync('promtool', ['check', 'metrics'], { input, encoding: 'utf8' })).toMatchObject({
      status: 0,
      stderr: '',
    });
  });

  it('fires after an instance cut off connections whose responses were not read', async () => {
    const close = await holdPages(instance.url, postgres.url, { headers: `Authorization: ${unreadKey}\r\n` });
    await untilAlertIs('BrandedPhoneNumbersConnectionsCutOff', 'firing').finally(close);
    await untilAlertIs('BrandedPhoneNumbersConnectionsCutOff', undefined);
  });

  it('fires while a key expires within 14 days', async () => {
    await untilAlertIs('BrandedPhoneNumbersKeysExpiring', 'firing');
  });

  it('fires while pages take longer than 0.25 s', async () => {
    await whilePages('PERFORM pg_sleep(0.26)', () => untilAlertIs('BrandedPhoneNumbersSlow', 'firing'));
  });

  it('fires after a page failed with a 500', async () => {
    await whilePages(`RAISE 'a bug'`, async () => {
      const headers = { Authorization: key };
      const { status } = await fetch(`${instance.url}/v1/brandedPhoneNumbers`, { headers });
      expect(status).toBe(500);
    });
    await untilAlertIs('BrandedPhoneNumbersInternalError', 'firing');
  });

  it('fires after Redis went down, until it is up', async () => {
    await redis.kill();
    await untilAlertIs('BrandedPhoneNumbersLimitStoreDown', 'firing');
    await redis.start();
    await untilAlertIs('BrandedPhoneNumbersLimitStoreDown', undefined);
  });

  it('fires after PostgreSQL went down, although HAProxy sends no request to the instance, until it is up', async () => {
    await postgres.stop();
    await untilAlertIs('BrandedPhoneNumbersNoInstanceReady', 'firing');
    expect(JSON.parse(latest).detail).toBe('No instance is ready. Try again.');
    await untilAlertIs('BrandedPhoneNumbersInstanceNotReady', 'firing');
    await postgres.start();
    await untilAlertIs('BrandedPhoneNumbersNoInstanceReady', undefined);
    await untilAlertIs('BrandedPhoneNumbersInstanceNotReady', undefined);
  });

  it('fires after an instance went down', async () => {
    await instance.stop('SIGKILL');
    await untilAlertIs('BrandedPhoneNumbersNoInstanceReady', 'firing');
    await untilAlertIs('BrandedPhoneNumbersInstanceNotReady', 'firing');
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

  /** Has PostgreSQL run `statement`, in PL/pgSQL, for each page until `use` ends. */
  async function whilePages(statement: string, use: () => Promise<void>): Promise<void> {
    const sql = connectTo(postgres.url);
    // As STABLE, it also runs once if there are no rows.
    await sql.unsafe(`
      CREATE FUNCTION cause() RETURNS boolean STABLE LANGUAGE plpgsql AS $$ BEGIN ${statement}; RETURN true; END $$;
      ALTER TABLE items RENAME TO all_items;
      CREATE VIEW items AS SELECT * FROM all_items WHERE cause()`);
    await use();
    await sql.unsafe('DROP VIEW items; ALTER TABLE all_items RENAME TO items; DROP FUNCTION cause');
    await sql.end();
  }

  async function untilAlertIs(alert: string, state: string | undefined): Promise<void> {
    const isThere = async () => (await alerts())[alert] === state;
    await until(isThere, `${alert} is ${state ?? 'inactive'}`, 60_000);
  }
});

/** Divides times such as `5m` by 20. */
function accelerated(text: string): string {
  return text.replace(
    /\b(\d+)([hm])\b/g,
    (_all, count, unit) => `${(Number(count) * (unit === 'h' ? 3600 : 60)) / 20}s`,
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
