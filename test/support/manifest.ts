/** The resources of the Kubernetes manifest. */
import { readFileSync } from 'node:fs';
import { parse, parseAllDocuments } from 'yaml';

export const MANIFEST = 'deploy/kubernetes/branded-phone-numbers.yaml';

/** A Kubernetes object; kubernetes-validate checks its members. */
// biome-ignore lint/suspicious/noExplicitAny: kubernetes-validate checks the types
type Resource = any;

const resources: Resource[] = parseAllDocuments(readFileSync(MANIFEST, 'utf8')).map((document) => document.toJS());

/** Returns the only object of a kind. */
export function resource(kind: string): Resource {
  const [found, second] = resources.filter((one) => one.kind === kind);
  if (!found || second) throw new Error(`${MANIFEST} must have exactly one ${kind}`);
  return found;
}

/** Returns the CronJob of docs/imports.md: the Job's pod, in which the recipe's members replace those of the same name. */
export function scheduledImport(): Resource {
  const [, recipe = ''] =
    /^```yaml\n(spec:\n {2}schedule: .*?)^```$/ms.exec(readFileSync('docs/imports.md', 'utf8')) ?? [];
  const { spec } = parse(recipe);
  const { metadata, spec: job } = resource('Job');
  const pod = spec.jobTemplate.spec.template;
  const [changed] = pod.spec.containers;
  const containers = job.template.spec.containers.map((one: Resource) => ({ ...one, ...changed }));
  spec.jobTemplate.spec.template = { ...job.template, spec: { ...job.template.spec, ...pod.spec, containers } };
  return { apiVersion: 'batch/v1', kind: 'CronJob', metadata, spec };
}

const [container] = resource('Deployment').spec.template.spec.containers;
/** The memory that an instance may use. */
export const MEMORY_LIMIT_MIB = Number(/^(\d+)Mi$/.exec(container.resources.limits.memory)?.[1]);

const image = Object.fromEntries(
  [...readFileSync('Dockerfile', 'utf8').matchAll(/^ENV (\w+)=(.*)$/gm)].map(([, name = '', value = '']) => [
    name,
    value,
  ]),
);

/** Returns the environment of the container: the image's and the manifest's, without the variables of its secret. */
export function environmentOf(kind: 'Deployment' | 'Job'): Record<string, string> {
  const [container] = resource(kind).spec.template.spec.containers;
  const variables: { name: string; value: string }[] = container.env;
  return { ...image, ...Object.fromEntries(variables.map(({ name, value }) => [name, value])) };
}
