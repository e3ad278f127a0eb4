/** The part of JSON Schema that says what a page is. */
export interface Schema {
  type: string[];
  pattern?: string;
  required?: string[];
  properties?: Record<string, Schema>;
  items?: Schema;
}

/** Tells whether a value has the type, the members and the items that a schema requires. It may have more members. */
export function conforms(value: unknown, { type, pattern, required = [], properties = {}, items }: Schema): boolean {
  if (!type.includes(typeOf(value))) return false;
  if (typeof value === 'string') return pattern === undefined || new RegExp(pattern).test(value);
  if (Array.isArray(value)) return value.every((item) => items === undefined || conforms(item, items));
  const members = new Map(Object.entries(value ?? {}));
  return (
    value === null ||
    (required.every((name) => members.has(name)) &&
      Object.entries(properties).every(([name, schema]) => !members.has(name) || conforms(members.get(name), schema)))
  );
}

function typeOf(value: unknown): string {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'array' : typeof value;
}
