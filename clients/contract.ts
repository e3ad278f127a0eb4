/**
 * The version of the contract that our clients are generated from, on standard output. It differs from
 * openapi/openapi.yaml where the generators need it:
 *
 * - The API is described in one line, since every generated file repeats that at its top.
 * - A parameter's description says its bounds, because editors show descriptions, not schemas.
 * - `nextCursor` may be null, as on the last page, so that a loop over pages can pass on what it received.
 * - Only the successful response is listed: one piece of code in each client reads problems, whatever their status and
 *   whether the service or a proxy sent them.
 */
import { valueWords } from '../browser/parameterWords.js';
import { contract, type Parameter, resolve } from '../src/contract.js';

function forClients({ schema, description = '', ...parameter }: Parameter): Parameter {
  const item = resolve(schema.items ?? schema);
  const bounds = `${schema.items ? `Up to ${schema.maxItems} ${item.enum ? 'of' : 'values, each'}: ` : ''}${item.enum ? item.enum.map((value) => `\`${value}\``).join(', ') : valueWords(item)}.`;
  return {
    ...parameter,
    schema: parameter.name === 'nextCursor' ? { ...schema, type: ['string', 'null'] } : schema,
    description: `${description} ${bounds.charAt(0).toUpperCase()}${bounds.slice(1)}`.replace(/\s+/g, ' '),
  };
}

type Operations = Record<string, { responses: Record<string, unknown> }>;
const paths = structuredClone<Record<string, unknown>>(contract.paths) as Record<string, Operations>;
for (const operation of Object.values(paths).flatMap((operations) => Object.values(operations)))
  operation.responses = { 200: operation.responses[200] };

const parameters = Object.entries(contract.components.parameters).map(([key, each]) => [key, forClients(each)]);
const components = { ...contract.components, parameters: Object.fromEntries(parameters) };

const info = { ...contract.info, description: contract.info.summary };

console.log(JSON.stringify({ ...contract, info, paths, components }));
