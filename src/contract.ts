/** The contract as the running service reads it: `openapi/openapi.yaml`, parsed once. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CORE_SCHEMA, load } from 'js-yaml';
import { packageFolder } from './packageFolder.js';

export interface Schema {
  $ref?: string;
  title?: string;
  type?: string | string[];
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  maxItems?: number;
  default?: unknown;
  enum?: string[];
  examples?: unknown[];
  items?: Schema;
  required?: string[];
  /** The values of an open list that this version knows; clients must expect others. */
  'x-known-values'?: { $ref: string };
  properties?: Record<string, Schema>;
  [keyword: string]: unknown;
}

export interface Parameter {
  name: string;
  in: string;
  description?: string;
  schema: Schema;
  examples?: Record<string, { summary?: string; value: unknown }>;
  /** What other APIs call it; for hints only. */
  'x-synonyms'?: string[];
}

/** One kind of problem (RFC 9457 section 4.2), as `x-problems` lists them. */
export interface ProblemType {
  title: string;
  status: number;
  /** What happened, for a reader. */
  meaning: string;
  /** What the reader can do about it. */
  advice: string;
}

interface Operation {
  operationId: string;
  summary: string;
  parameters: { $ref: string }[];
  /** Requests that /docs offers; `examples` names an example of each parameter that is sent. */
  'x-requests'?: { summary: string; examples: Record<string, string> }[];
  /** The most pairs of a name and a value in a query; OpenAPI has no keyword for it. */
  'x-max-query-pairs': number;
}

export interface Contract {
  openapi: string;
  info: { title: string; version: string; summary: string; description: string };
  paths: Record<string, Record<string, Operation>>;
  /** The ways to authenticate, by the names of their schemes; the empty one is without a key. */
  security: Record<string, string[]>[];
  components: { parameters: Record<string, Parameter>; schemas: Record<string, Schema>; [section: string]: unknown };
  'x-problems': Record<string, ProblemType>;
}

const text = readFileSync(join(packageFolder, 'openapi', 'openapi.yaml'), 'utf8');
export const contract = load(text, { schema: CORE_SCHEMA }) as Contract;

/** Returns a deep copy of a part of the contract in which texts have their exact pattern, not the published part of it. */
export function withExactPatterns<T>(part: T): T {
  return JSON.parse(JSON.stringify(part), (_key, value) => {
    const { 'x-exact-pattern': pattern, ...schema } = value ?? {};
    return pattern ? { ...schema, pattern } : value;
  });
}

/** Follows `$ref`s within the document to what they lead to. */
export function resolve<T extends object>(thing: T | { $ref: string }): T {
  if (!('$ref' in thing) || typeof thing.$ref !== 'string') return thing as T;
  const found = thing.$ref
    .slice('#/'.length)
    .split('/')
    .reduce((at: unknown, key) => (at as Record<string, unknown>)[key], contract);
  return resolve(found as T);
}

/** The query parameters of the list operation, by name, in the document's order. */
export const parameters: ReadonlyMap<string, Parameter> = new Map(
  Object.values(contract.paths)
    .flatMap((operations) => operations.get?.parameters ?? [])
    .map((reference) => resolve<Parameter>(reference))
    .map((parameter) => [parameter.name, { ...parameter, schema: resolve(parameter.schema) }]),
);
