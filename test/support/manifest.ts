/** The Kubernetes manifest, as the tests read it. */
import { readFileSync } from 'node:fs';
import { parseAllDocuments } from 'yaml';

export const MANIFEST = 'deploy/kubernetes/branded-phone-numbers.yaml';

/** A Kubernetes object, as far as the tests look at it; kubernetes-validate checks that it is one. */
// biome-ignore lint/suspicious/noExplicitAny: the schemas are Kubernetes's own, and checked there
type Resource = any;

const resources: Resource[] = parseAllDocuments(readFileSync(MANIFEST, 'utf8')).map((document) => document.toJS());

/** The one object of this kind. */
export function resource(kind: string): Resource {
  const [found, second] = resources.filter((each) => each.kind === kind);
  if (!found || second) throw new Error(`${MANIFEST} has not exactly one ${kind}`);
  return found;
}

/** The environment of the container that serves, without what its secret holds. */
export function environmentOf(kind: 'Deployment' | 'Job'): Record<string, string> {
  const [container] = resource(kind).spec.template.spec.containers;
  return Object.fromEntries(container.env.map(({ name, value }: { name: string; value: string }) => [name, value]));
}
