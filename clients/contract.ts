/**
 * Prints the version of the contract that our clients are generated from. It differs from openapi/openapi.yaml:
 *
 * - The description of the API is one line, since every generated file begins with it.
 * - A parameter's description states its bounds, because editors show descriptions, not schemas.
 * - `nextCursor` may be null, as on the last page, so that a loop over pages can pass on what it received.
 * - `Status` lists the known values of a number's status, of which the contract only says that they may grow.
 * - Request headers are left out: `If-None-Match` is sent by a helper, which returns a 304 as a value.
 * - `x-page-schema` says what a client requires of a page: the members and their types, as a string literal with JSON.
 * - Only the successful response is listed. Each client has its own code for error responses, because a proxy may send
 *   any status and body.
 */

import { contract, type Parameter, resolve, type Schema } from '../src/contract.js';
import { valueWords } from '../src/messages/parameterWords.js';

function forClients({ schema, description = '', ...parameter }: Parameter): Parameter {
  const item = resolve(schema.items ?? schema);
  const bounds = `${schema.items ? `Up to ${schema.maxItems} ${item.enum ? 'of' : 'values, each'}: ` : ''}${item.enum ? item.enum.map((value) => `\`${value}\``).join(', ') : valueWords(item)}.`;
  return {
    ...parameter,
    schema: parameter.name === 'nextCursor' ? { ...schema, type: ['string', 'null'] } : schema,
    description: `${description} ${bounds.charAt(0).toUpperCase()}${bounds.slice(1)}`.replace(/\s+/g, ' '),
  };
}

/** JSON Schema of the types and members that a page must have, which each client checks. */
interface PageSchema {
  type: string[];
  pattern?: string;
  required?: string[];
  properties?: Record<string, PageSchema>;
  items?: PageSchema;
}

/** The forms of texts that clients convert; the expressions work in the languages of all clients. */
const PATTERNS: Record<string, string> = {
  uuid: '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$',
  'date-time': '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$',
};

/** Returns the types and members in a schema of the contract, without its bounds. */
function typesIn(node: Schema): PageSchema {
  const { type = [], format, required, properties, items } = resolve(node);
  const types = [type].flat();
  if (!types.every((name) => ['object', 'array', 'string', 'null'].includes(name)))
    throw new Error(`the clients do not check ${types.join(' or ')} yet`);
  return {
    type: types,
    ...(typeof format === 'string' && { pattern: PATTERNS[format] }),
    ...(required && { required }),
    ...(properties && {
      properties: Object.fromEntries(Object.entries(properties).map(([name, member]) => [name, typesIn(member)])),
    }),
    ...(items && { items: typesIn(items) }),
  };
}

const paths = structuredClone(contract.paths);
for (const operation of Object.values(paths).flatMap((operations) => Object.values(operations))) {
  operation.parameters = operation.parameters.filter((reference) => resolve<Parameter>(reference).in === 'query');
  const { content } = operation.responses[200] as { content: Record<string, { schema: Schema }> };
  const pageSchema = typesIn(content['application/json']?.schema ?? {});
  Object.assign(operation, { 'x-page-schema': JSON.stringify(JSON.stringify(pageSchema)) });
  operation.responses = Object.fromEntries(Object.entries(operation.responses).filter(([status]) => status === '200'));
}

const parameters = Object.entries(contract.components.parameters).map(([key, parameter]) => [
  key,
  forClients(parameter),
]);

const { 'x-known-values': known } = contract.components.schemas.BrandedPhoneNumber?.properties?.status ?? {};
const Status = { ...known, type: 'string', description: 'An overall status known to this version of the client.' };
const schemas = { ...contract.components.schemas, Status };
const components = { ...contract.components, schemas, parameters: Object.fromEntries(parameters) };

const info = { ...contract.info, description: contract.info.summary };

console.log(JSON.stringify({ ...contract, info, paths, components }));
