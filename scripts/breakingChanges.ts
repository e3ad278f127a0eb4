/**
 * Changes of the contract that would break a client of the released one. `npm run check:breaking` compares
 * openapi/openapi.yaml with the newest document in openapi/released/ and fails if there are any.
 *
 * A tool of our own: oasdiff 1.35.0 finds less. Whatever its severities are set to, it lets pass that an array parameter
 * is written otherwise, that its free text becomes a closed list, that a problem type goes, and keywords unknown to it.
 * This one knows the keywords that our documents use, and reports any other difference instead of letting it pass.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { parse } from 'yaml';

// biome-ignore lint/suspicious/noExplicitAny: two parsed documents whose shape is what has to be found out.
type Node = any;

/** The service has to understand every request of a client; a client, every answer of the service. */
type Direction = 'request' | 'answer';

const METHODS = ['get', 'put', 'post', 'delete', 'options', 'head', 'patch', 'trace'];
const LOWER_BOUNDS = ['minimum', 'exclusiveMinimum', 'minLength', 'minItems', 'minProperties'];
const UPPER_BOUNDS = ['maximum', 'exclusiveMaximum', 'maxLength', 'maxItems', 'maxProperties'];
/** Keywords that change nothing on the wire. */
const ANNOTATIONS = ['title', 'description', 'example', 'examples', 'deprecated', 'readOnly', 'writeOnly', '$comment'];
const COMPARED = ['type', 'enum', 'pattern', 'format', 'default', 'properties', 'required', 'items'];

/** Every breaking change from `released` to `proposed`, each as a sentence that says where. */
export function breakingChanges(released: Node, proposed: Node): string[] {
  const found: string[] = [];
  const say = (where: string, what: string) => found.push(`${where}: ${what}`);
  const before = dereference(released, released);
  const after = dereference(proposed, proposed);

  for (const [path, item] of entries(before.paths)) {
    for (const method of METHODS.filter((m) => item[m])) {
      const where = `${method.toUpperCase()} ${path}`;
      const operation = after.paths?.[path]?.[method];
      if (!operation) say(where, 'the operation is gone');
      else compareOperation(where, item[method], operation);
    }
  }
  for (const [name, scheme] of entries(before.components?.securitySchemes)) {
    const kept = after.components?.securitySchemes?.[name];
    for (const key of ['type', 'in', 'name', 'scheme']) {
      if (kept?.[key] !== scheme[key]) say(`security scheme ${name}`, `its ${key} was ${scheme[key]}`);
    }
  }
  for (const [name, problem] of entries(before['x-problems'])) {
    const kept = after['x-problems']?.[name];
    if (!kept) say(`problem ${name}`, 'the problem type is gone');
    else if (kept.status !== problem.status) say(`problem ${name}`, `its status was ${problem.status}`);
    else if (kept.title !== problem.title) say(`problem ${name}`, `its title was ${problem.title}`);
  }
  return found;

  function compareOperation(where: string, old: Node, now: Node) {
    if (old.operationId !== now.operationId) say(where, `its operationId was ${old.operationId}`);
    if (old.requestBody || now.requestBody) say(where, 'this check does not compare request bodies yet');
    const ways = (operation: Node, document: Node): Node[] => operation.security ?? document.security ?? [{}];
    for (const way of ways(old, before)) {
      if (!ways(now, after).some((kept) => isDeepStrictEqual(kept, way)))
        say(where, `it is no longer enough to authenticate with ${Object.keys(way).join(' and ') || 'nothing'}`);
    }
    compareParameters(where, old.parameters ?? [], now.parameters ?? []);
    for (const [status, answer] of entries(old.responses)) {
      const kept = now.responses?.[status];
      if (kept) compareAnswer(`${where} → ${status}`, answer, kept);
      else say(where, `the answer ${status} is gone`);
    }
  }

  function compareParameters(where: string, old: Node[], now: Node[]) {
    const isSame = (a: Node) => (b: Node) => a.name === b.name && a.in === b.in;
    for (const parameter of old) {
      const at = `${where} parameter ${parameter.name}`;
      const kept = now.find(isSame(parameter));
      if (!kept) {
        say(at, 'the parameter is gone');
        continue;
      }
      if (kept.required && !parameter.required) say(at, 'it is now required');
      for (const key of ['style', 'explode', 'allowReserved', 'content']) {
        if (!isDeepStrictEqual(kept[key], parameter[key])) say(at, `its ${key} changed`);
      }
      compareSchema(at, parameter.schema, kept.schema, 'request');
    }
    for (const parameter of now.filter((p) => p.required && !old.some(isSame(p))))
      say(`${where} parameter ${parameter.name}`, 'it is new and required');
  }

  function compareAnswer(where: string, old: Node, now: Node) {
    for (const [type, content] of entries(old.content)) {
      const kept = now.content?.[type];
      if (kept) compareSchema(where, content.schema, kept.schema, 'answer');
      else say(where, `the content type ${type} is gone`);
    }
    for (const [name, header] of entries(old.headers)) {
      const kept = now.headers?.[name];
      if (kept) compareSchema(`${where} header ${name}`, header.schema, kept.schema, 'answer');
      else say(where, `the header ${name} is gone`);
    }
  }

  function compareSchema(where: string, old: Node, now: Node, direction: Direction) {
    // A reader must accept everything that the writer may send: what the writer's schema allows, the reader's must allow too.
    const [writer, reader] = direction === 'request' ? [old, now] : [now, old];

    const types = (schema: Node): Node[] => [schema.type ?? []].flat();
    const unread = types(writer).filter((type) => !types(reader).includes(type));
    const opened = types(writer).length === 0 && types(reader).length > 0;
    if (unread.length > 0 || opened)
      say(where, `its type was ${types(old).join(' or ')}, now ${types(now).join(' or ')}`);

    if (reader.enum) {
      if (!writer.enum)
        say(where, direction === 'request' ? 'it takes only some values now' : 'it may have any value now');
      for (const value of (writer.enum ?? []).filter((v: Node) => !reader.enum.includes(v)))
        say(where, direction === 'request' ? `it no longer takes the value ${value}` : `its value may now be ${value}`);
    }
    for (const key of [...LOWER_BOUNDS, ...UPPER_BOUNDS]) {
      const none = LOWER_BOUNDS.includes(key) ? -Infinity : Infinity;
      const [widest, limit] = [writer[key] ?? none, reader[key] ?? none];
      if (LOWER_BOUNDS.includes(key) ? widest < limit : widest > limit)
        say(where, `its ${key} was ${old[key] ?? 'open'}, now ${now[key] ?? 'open'}`);
    }
    const formOf: Record<string, (schema: Node) => Node> = {
      // What the service takes and sends, of which `pattern` may be only a part.
      pattern: (schema) => schema['x-exact-pattern'] ?? schema.pattern,
      format: (schema) => schema.format,
    };
    for (const [key, form] of entries(formOf)) {
      if (form(reader) !== undefined && form(reader) !== form(writer))
        say(where, `its ${key} was ${form(old) ?? 'open'}, now ${form(now) ?? 'open'}`);
    }
    if (direction === 'request' && !isDeepStrictEqual(old.default, now.default))
      say(where, `its default was ${old.default}, now ${now.default}`);

    for (const [name, schema] of entries(old.properties)) {
      const kept = now.properties?.[name];
      if (kept) compareSchema(`${where} ${name}`, schema, kept, direction);
      else say(`${where} ${name}`, 'the member is gone');
    }
    for (const name of (reader.required ?? []).filter((n: string) => !writer.required?.includes(n)))
      say(`${where} ${name}`, direction === 'request' ? 'it is now required' : 'it may now be absent');

    if (old.items && now.items) compareSchema(`${where} item`, old.items, now.items, direction);
    else if (old.items || now.items) say(where, 'what its items may be changed');

    const known = new Set([...ANNOTATIONS, ...COMPARED, ...LOWER_BOUNDS, ...UPPER_BOUNDS]);
    for (const key of new Set([...Object.keys(old), ...Object.keys(now)])) {
      const matters = !known.has(key) && !key.startsWith('x-');
      if (matters && !isDeepStrictEqual(old[key], now[key]))
        say(where, `its ${key} changed, which this check does not judge`);
    }
  }
}

const entries = (object: Node): [string, Node][] => Object.entries(object ?? {});

/** `node` with every reference replaced by what it leads to; the document has no cycles. */
function dereference(node: Node, document: Node): Node {
  if (Array.isArray(node)) return node.map((child) => dereference(child, document));
  if (typeof node !== 'object' || node === null) return node;
  if (typeof node.$ref === 'string') {
    const keys = node.$ref.slice('#/'.length).split('/');
    return dereference(
      keys.reduce((at: Node, key: string) => at[key], document),
      document,
    );
  }
  return Object.fromEntries(Object.entries(node).map(([key, child]) => [key, dereference(child, document)]));
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const folder = join(import.meta.dirname, '..', 'openapi');
  const newest = readdirSync(join(folder, 'released'))
    .sort((a, b) => a.localeCompare(b, 'en', { numeric: true }))
    .at(-1);
  if (!newest) throw new Error('openapi/released/ is empty: there is nothing to compare with');
  const read = (...path: string[]) => parse(readFileSync(join(folder, ...path), 'utf8'));
  const found = breakingChanges(read('released', newest), read('openapi.yaml'));
  for (const line of found) console.error(line);
  console.log(`${found.length} breaking changes since ${newest}`);
  process.exitCode = found.length > 0 ? 1 : 0;
}
