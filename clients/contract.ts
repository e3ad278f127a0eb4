/**
 * Prints the version of the contract that our clients are generated from. It differs from openapi/openapi.yaml:
 *
 * - The description of the API is one line, since every generated file begins with it.
 * - A parameter's description states its bounds, because editors show descriptions, not schemas.
 * - `nextCursor` may be null, as on the last page, so that a loop over pages can pass on what it received.
 * - `Status` lists the known values of a number's status, of which the contract only says that they may grow.
 * - Request headers are left out: `If-None-Match` is sent by a helper, which returns a 304 as a value.
 * - Only the successful response is listed. Each client has its own code for error responses, because a proxy may send
 *   any status and body.
 */

import { contract, type Parameter, resolve } from '../src/contract.js';
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

const paths = structuredClone(contract.paths);
for (const operation of Object.values(paths).flatMap((operations) => Object.values(operations))) {
  operation.parameters = operation.parameters.filter((reference) => resolve<Parameter>(reference).in === 'query');
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
