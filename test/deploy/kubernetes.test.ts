/** The Kubernetes manifest: valid by the schemas, and in line with the service. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readConfig, settingNames } from '../../src/config/config.js';
import { environmentOf, MANIFEST, resource } from '../support/manifest.js';
import { isInstalled, KUBERNETES_VALIDATE, run } from '../support/programs.js';

/** The oldest version that is still in use and the newest that there are schemas of. */
const VERSIONS = ['-k', '1.30', '-k', '1.37'];
/** Seconds that a stop takes at most beside DRAIN_SECONDS and REQUEST_TIMEOUT_SECONDS (docs/operations.md). */
const STOP_SECONDS = 3;

describe.skipIf(!isInstalled(KUBERNETES_VALIDATE))('by the schemas of Kubernetes', () => {
  const validate = (file: string) => run(KUBERNETES_VALIDATE, ['--strict', ...VERSIONS, file]);

  it('the manifest is valid', async () => {
    expect(await validate(MANIFEST)).toMatchObject({ status: 0 });
  });

  it('a manifest with a misspelt member is not', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'branded-phone-numbers-deploy-'));
    const file = join(folder, 'misspelt.yaml');
    await writeFile(file, (await readFile(MANIFEST, 'utf8')).replace('readinessProbe:', 'readynessProbe:'));
    const { status, output } = await validate(file);
    await rm(folder, { recursive: true });
    expect(status).not.toBe(0);
    expect(output).toContain('readynessProbe');
  });
});

describe('the manifest', () => {
  const deployment = resource('Deployment');
  const pod = deployment.spec.template.spec;
  const [container] = pod.containers;

  it.each(['Deployment', 'Job'] as const)('gives the %s only settings that exist, with valid values', (kind) => {
    const { NODE_OPTIONS, ...settings } = environmentOf(kind);
    expect(Object.keys(settings).filter((name) => !settingNames.includes(name))).toEqual([]);
    // HOST is the image's.
    expect(() => readConfig({ HOST: '0.0.0.0', ...settings })).not.toThrow();
  });

  it.each(['Deployment', 'Job'])('keeps the addresses of Services out of the environment of the %s', (kind) => {
    expect(resource(kind).spec.template.spec.enableServiceLinks).toBe(false);
  });

  it('has labels that match every selector, the ports of its settings, and probes on the operator’s port', () => {
    const { labels } = deployment.spec.template.metadata;
    for (const selector of [
      deployment.spec.selector.matchLabels,
      resource('Service').spec.selector,
      resource('PodDisruptionBudget').spec.selector.matchLabels,
      pod.topologySpreadConstraints[0].labelSelector.matchLabels,
    ])
      expect(labels).toMatchObject(selector);
    // The Service must not send requests to the migration.
    expect(resource('Job').spec.template.metadata.labels).not.toMatchObject(resource('Service').spec.selector);
    const config = readConfig(environmentOf('Deployment'));
    const ports = Object.fromEntries(
      container.ports.map((port: { name: string; containerPort: number }) => [port.name, port.containerPort]),
    );
    expect(ports).toEqual({ http: config.PORT, metrics: config.METRICS_PORT });
    expect(resource('Service').spec.ports).toEqual([{ name: 'http', port: 80, targetPort: 'http' }]);
    for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe'])
      expect(container[probe].httpGet.port).toBe('metrics');
  });

  it('gives an instance enough time to stop', () => {
    const { DRAIN_SECONDS, REQUEST_TIMEOUT_SECONDS } = readConfig(environmentOf('Deployment'));
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(DRAIN_SECONDS + REQUEST_TIMEOUT_SECONDS + STOP_SECONDS);
    // So that no new request arrives when it stops listening.
    const { periodSeconds, failureThreshold } = container.readinessProbe;
    expect(failureThreshold).toBeGreaterThan(1);
    expect(DRAIN_SECONDS).toBeGreaterThan(periodSeconds * failureThreshold);
  });

  it('can lose a node or an upgrade without losing all instances', () => {
    const { maxUnavailable } = resource('PodDisruptionBudget').spec;
    expect(deployment.spec.replicas).toBeGreaterThan(maxUnavailable);
    expect(deployment.spec.strategy.rollingUpdate.maxUnavailable).toBe(0);
  });

  it('migrates with the image that it serves from', () => {
    const [migration] = resource('Job').spec.template.spec.containers;
    expect(migration.image).toBe(container.image);
  });
});
