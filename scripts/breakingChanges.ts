/**
 * Finds changes of the contract that would break clients of the released one. `npm run check:breaking` compares
 * openapi/openapi.yaml with that of the last release's commit, and fails if there are any.
 *
 * oasdiff 1.35.0 misses changes, whatever its settings: a changed style of an array parameter, an open list of values
 * that becomes closed, a removed problem type, and changes of unknown keywords. This script compares the keywords that
 * our documents use, and reports any change of another keyword.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { parse } from 'yaml';
import releases from '../test/database/releases.json' with { type: 'json' };

// biome-ignore lint/suspicious/noExplicitAny: two parsed documents whose structure is compared.
type Node = any;

type Direction = 'request' | 'response';

const METHODS = ['get', 'put', 'post', 'delete', 'options', 'head', 'patch', 'trace'];
const LOWER_BOUNDS = ['minimum', 'exclusiveMinimum', 'minLength', 'minItems', 'minProperties'];
const UPPER_BOUNDS = ['maximum', 'exclusiveMaximum', 'maxLength', 'maxItems', 'maxProperties'];
/** Keywords that do not affect requests and responses. */
const ANNOTATIONS = ['title', 'description', 'example', 'examples', 'deprecated', 'readOnly', 'writeOnly', '$comment'];
const COMPARED = ['type', 'enum', 'pattern', 'format', 'default', 'properties', 'required', 'items'];

/** Returns a line for every breaking change from `released` to `proposed`: the place, a colon and the change. */
export function breakingChanges(released: Node, proposed: Node): string[] {
  const changes: string[] = [];
  const report = (place: string, change: string) => changes.push(`${place}: ${change}`);
  const before = dereference(released, released);
  const after = dereference(proposed, proposed);

  for (const [path, item] of entries(before.paths)) {
    for (const method of METHODS.filter((m) => item[m])) {
      const place = `${method.toUpperCase()} ${path}`;
      const operation = after.paths?.[path]?.[method];
      if (!operation) report(place, 'the operation is gone');
      else compareOperation(place, item[method], operation);
    }
  }
  for (const [name, scheme] of entries(before.components?.securitySchemes)) {
    const kept = after.components?.securitySchemes?.[name];
    for (const key of ['type', 'in', 'name', 'scheme']) {
      if (kept?.[key] !== scheme[key]) report(`security scheme ${name}`, `its ${key} was ${scheme[key]}`);
    }
  }
  for (const [name, problem] of entries(before['x-problems'])) {
    const kept = after['x-problems']?.[name];
    if (!kept) report(`problem ${name}`, 'the problem type is gone');
    else if (kept.status !== problem.status) report(`problem ${name}`, `its status was ${problem.status}`);
    else if (kept.title !== problem.title) report(`problem ${name}`, `its title was ${problem.title}`);
  }
  return changes;

  function compareOperation(place: string, old: Node, now: Node) {
    if (old.operationId !== now.operationId) report(place, `its operationId was ${old.operationId}`);
    if (old.requestBody || now.requestBody) report(place, 'this check does not compare request bodies yet');
    const schemesOf = (operation: Node, document: Node): Node[] => operation.security ?? document.security ?? [{}];
    for (const scheme of schemesOf(old, before)) {
      if (!schemesOf(now, after).some((kept) => isDeepStrictEqual(kept, scheme)))
        report(place, `it no longer accepts authentication with ${Object.keys(scheme).join(' and ') || 'nothing'}`);
    }
    compareParameters(place, old.parameters ?? [], now.parameters ?? []);
    for (const [status, response] of entries(old.responses)) {
      const kept = now.responses?.[status] ?? now.responses?.default;
      if (kept) compareResponse(`${place} → ${status}`, response, kept);
      else report(place, `the response ${status} is gone`);
    }
  }

  function compareParameters(place: string, old: Node[], now: Node[]) {
    const isSame = (a: Node) => (b: Node) => a.name === b.name && a.in === b.in;
    for (const parameter of old) {
      const parameterPlace = `${place} parameter ${parameter.name}`;
      const kept = now.find(isSame(parameter));
      if (!kept) {
        report(parameterPlace, 'the parameter is gone');
        continue;
      }
      if (kept.required && !parameter.required) report(parameterPlace, 'it is now required');
      for (const key of ['style', 'explode', 'allowReserved', 'content']) {
        if (!isDeepStrictEqual(kept[key], parameter[key])) report(parameterPlace, `its ${key} changed`);
      }
      compareSchema(parameterPlace, parameter.schema, kept.schema, 'request');
    }
    for (const parameter of now.filter((p) => p.required && !old.some(isSame(p))))
      report(`${place} parameter ${parameter.name}`, 'it is new and required');
  }

  function compareResponse(place: string, old: Node, now: Node) {
    for (const [type, content] of entries(old.content)) {
      const kept = now.content?.[type];
      if (kept) compareSchema(place, content.schema, kept.schema, 'response');
      else report(place, `the content type ${type} is gone`);
    }
    for (const [name, header] of entries(old.headers)) {
      const kept = now.headers?.[name];
      if (kept) compareSchema(`${place} header ${name}`, header.schema, kept.schema, 'response');
      else report(place, `the header ${name} is gone`);
    }
  }

  function compareSchema(place: string, old: Node, now: Node, direction: Direction) {
    // The reader's schema must allow every value that the writer's schema allows. An old client writes requests and
    // reads responses.
    const [writer, reader] = direction === 'request' ? [old, now] : [now, old];

    const types = (schema: Node): Node[] => [schema.type ?? []].flat();
    const isUntyped = types(writer).length === 0 && types(reader).length > 0;
    if (isUntyped || types(writer).some((type) => !types(reader).includes(type)))
      report(place, `its type was ${types(old).join(' or ')}, now ${types(now).join(' or ')}`);

    if (reader.enum) {
      if (!writer.enum)
        report(place, direction === 'request' ? 'it accepts only some values now' : 'it may have any value now');
      for (const value of (writer.enum ?? []).filter((v: Node) => !reader.enum.includes(v)))
        report(
          place,
          direction === 'request' ? `it no longer accepts the value ${value}` : `its value may now be ${value}`,
        );
    }
    for (const key of [...LOWER_BOUNDS, ...UPPER_BOUNDS]) {
      const unbounded = LOWER_BOUNDS.includes(key) ? -Infinity : Infinity;
      const [widest, limit] = [writer[key] ?? unbounded, reader[key] ?? unbounded];
      if (LOWER_BOUNDS.includes(key) ? widest < limit : widest > limit)
        report(place, `its ${key} was ${old[key] ?? 'open'}, now ${now[key] ?? 'open'}`);
    }
    const formOf: Record<string, (schema: Node) => Node> = {
      // The published `pattern` may be only a part of the one that the service checks.
      pattern: (schema) => schema['x-exact-pattern'] ?? schema.pattern,
      format: (schema) => schema.format,
    };
    for (const [key, form] of entries(formOf)) {
      if (form(reader) !== undefined && form(reader) !== form(writer))
        report(place, `its ${key} was ${form(old) ?? 'open'}, now ${form(now) ?? 'open'}`);
    }
    if (direction === 'request' && !isDeepStrictEqual(old.default, now.default))
      report(place, `its default was ${old.default}, now ${now.default}`);

    for (const [name, schema] of entries(old.properties)) {
      const kept = now.properties?.[name];
      if (kept) compareSchema(`${place} ${name}`, schema, kept, direction);
      else report(`${place} ${name}`, 'the member is gone');
    }
    for (const name of (reader.required ?? []).filter((n: string) => !writer.required?.includes(n)))
      report(`${place} ${name}`, direction === 'request' ? 'it is now required' : 'it may now be absent');

    if (old.items && now.items) compareSchema(`${place} item`, old.items, now.items, direction);
    else if (old.items || now.items) report(place, 'the schema of its items was added or removed');

    const known = new Set([...ANNOTATIONS, ...COMPARED, ...LOWER_BOUNDS, ...UPPER_BOUNDS]);
    for (const key of new Set([...Object.keys(old), ...Object.keys(now)])) {
      const matters = !known.has(key) && !key.startsWith('x-');
      if (matters && !isDeepStrictEqual(old[key], now[key]))
        report(place, `its ${key} changed, which this check does not compare yet`);
    }
  }
}

const entries = (object: Node): [string, Node][] => Object.entries(object ?? {});

/** Returns `node` with every reference replaced by its target; the document has no cycles. */
function dereference(node: Node, document: Node): Node {
  if (Array.isArray(node)) return node.map((child) => dereference(child, document));
  if (typeof node !== 'object' || node === null) return node;
  if (typeof node.$ref === 'string') {
    const keys = node.$ref.slice('#/'.length).split('/');
    return dereference(
      keys.reduce((parent: Node, key: string) => parent[key], document),
      document,
    );
  }
  return Object.fromEntries(Object.entries(node).map(([key, child]) => [key, dereference(child, document)]));
}

/** Returns the last released contract, from Git. @throws if the history lacks the release's commit */
export function releasedContract(): { version: string; document: Node } {
  const [version = '', { commit } = { commit: '' }] = Object.entries(releases).at(-1) ?? [];
  const options = { encoding: 'utf8', maxBuffer: 2 ** 26, stdio: 'pipe' } as const;
  const { status, stdout } = spawnSync('git', ['show', `${commit}:openapi/openapi.yaml`], options);
  if (status !== 0)
    throw new Error(`${version} is not in the history; run git fetch --unshallow, or clone the repository`);
  return { version, document: parse(stdout) };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const { version, document } = releasedContract();
  const changes = breakingChanges(document, parse(readFileSync('openapi/openapi.yaml', 'utf8')));
  for (const line of changes) console.error(line);
  console.log(`${changes.length} breaking changes since ${version}`);
  process.exitCode = changes.length > 0 ? 1 : 0;
}
