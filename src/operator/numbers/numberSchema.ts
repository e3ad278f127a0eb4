/** The schema of a number of an import, and with it the names of its members. */
import { contract, resolve, type Schema, withExactPatterns } from '../../contract.js';

/** Returns the schema of the contract's item, with some members optional and none added. */
function givenNumberSchema(): Schema {
  const schema = closed(contract.components.schemas.BrandedPhoneNumber as Schema);
  const entry = schema.properties?.carrierStatuses?.items as Schema;
  schema.properties = { ...schema.properties, status: {} };
  schema.required = without(schema.required, ['id', 'status', 'createdAt', 'updatedAt']);
  entry.required = without(entry.required, ['createdAt']);
  return schema;
}

/** Returns a copy with references resolved, which rejects unknown members and values that this version does not know. */
function closed(reference: Schema): Schema {
  const found = resolve(reference);
  const schema = { ...resolve<Schema>(found['x-known-values'] ?? found) };
  if (schema.items) schema.items = closed(schema.items);
  if (schema.properties) {
    schema.additionalProperties = false;
    schema.properties = Object.fromEntries(
      Object.entries(schema.properties).map(([name, property]) => [name, closed(property)]),
    );
  }
  return schema;
}

function without(names: readonly string[] = [], optional: readonly string[]): string[] {
  return names.filter((name) => !optional.includes(name));
}

export const numberSchema = withExactPatterns(givenNumberSchema());
