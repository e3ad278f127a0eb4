/** The contract, `openapi/openapi.yaml`, parsed once when the service starts. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CORE_SCHEMA, load } from 'js-yaml';
import { listBrandedPhoneNumbers } from '../generated/types/apis/index.js';
import { packageFolder } from './packageFolder.js';

export interface Schema {
  $ref?: string;
  title?: string;
  description?: string;
  type?: string | string[];
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  maxItems?: number;
  enum?: string[];
  examples?: unknown[];
  items?: Schema;
  required?: string[];
  /** The values of an open list that this version knows; clients must expect others. */
  'x-known-values'?: { $ref: string } | Schema;
  properties?: Record<string, Schema>;
  [keyword: string]: unknown;
}

export interface Parameter {
  name: string;
  in: 'query' | 'header';
  description?: string;
  schema: Schema;
  examples?: Record<string, { summary?: string; value: unknown }>;
  /** Names that other APIs use for it; for hints only. */
  'x-synonyms'?: string[];
}

/** A problem type (RFC 9457 section 4.2), as listed in `x-problems`. */
export interface ProblemType {
  title: string;
  status: number;
  /** What happened, in words for the problem's page. */
  meaning: string;
  advice: string;
}

interface DescribedResponse {
  description: string;
  headers?: Record<string, { $ref: string }>;
  content?: Record<string, { schema: Schema; example?: unknown; examples?: Record<string, { value: unknown }> }>;
}

interface Operation {
  summary: string;
  responses: Record<string, DescribedResponse | { $ref: string }>;
  parameters: { $ref: string }[];
  /** Requests that /docs offers; `examples` maps each parameter that is sent to the name of one of its examples. */
  'x-requests': { summary: string; examples: Record<string, string> }[];
  /** The largest number of parameters in a query, including repetitions; OpenAPI has no keyword for this. */
  'x-max-query-pairs': number;
}

export interface Contract {
  info: { title: string; version: string; summary: string; description: string };
  paths: Record<string, Record<string, Operation>>;
  /** The security schemes. A request must satisfy one of them; the empty object allows requests without a key. */
  security: Record<string, string[]>[];
  components: { parameters: Record<string, Parameter>; schemas: Record<string, Schema>; [section: string]: unknown };
  'x-problems': Record<string, ProblemType>;
}

const text = readFileSync(join(packageFolder, 'openapi', 'openapi.yaml'), 'utf8');
export const contract = load(text, { schema: CORE_SCHEMA }) as Contract;

/** Returns a deep copy of a part of the contract in which `x-exact-pattern` replaces the published `pattern`. */
export function withExactPatterns<T>(part: T): T {
  return JSON.parse(JSON.stringify(part), (_key, value) => {
    const { 'x-exact-pattern': pattern, ...schema } = value ?? {};
    return pattern ? { ...schema, pattern } : value;
  });
}

/** Returns the object that a `$ref` within the document points to, or the object itself if it has no `$ref`. */
export function resolve<T extends object>(node: T | { $ref: string }): T {
  if (!('$ref' in node) || typeof node.$ref !== 'string') return node as T;
  const target = node.$ref
    .slice('#/'.length)
    .split('/')
    .reduce((parent: unknown, key) => (parent as Record<string, unknown>)[key], contract);
  return resolve(target as T);
}

/** The operation that lists numbers, which is the only one. */
export const listOperation = contract.paths[listBrandedPhoneNumbers.path]?.get as Operation;

/** Returns the parameters of the list operation in one place, by name, in the document's order; their schemas are resolved. */
function parametersIn(place: Parameter['in']): ReadonlyMap<string, Parameter> {
  return new Map(
    listOperation.parameters
      .map((reference) => resolve<Parameter>(reference))
      .filter((parameter) => parameter.in === place)
      .map((parameter) => [parameter.name, { ...parameter, schema: resolve(parameter.schema) }]),
  );
}

export const parameters = parametersIn('query');
/** The request headers of the list operation, except those that every operation has, such as `Authorization`. */
export const requestHeaders = parametersIn('header');

/** The responses of the list operation, by status or `default`. */
export const responses: ReadonlyMap<string, DescribedResponse> = new Map(
  Object.entries(listOperation.responses).map(([status, response]) => [status, resolve<DescribedResponse>(response)]),
);
