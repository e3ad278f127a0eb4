/**
 * Pieces of SQL in which a misspelled table, column or parameter does not compile. Drizzle's own `sql` writes a column
 * as `"items"."phone_number"`, which can't name a column of a subquery; `fragment` writes `phone_number`.
 */
import type { SQL } from 'drizzle-orm';
import { Column, getTableName, is, sql, Table } from '../database/drizzle.js';
import { detailedStatus, feature, status } from '../database/schema.js';
import type { Filter } from './filter.js';

/** The parameters of a statement that reads a page: the filter's, and the page's position and size. */
export interface PageParameters extends Filter {
  /** Whether the filter has a condition on statuses or entries, so that numbers are found by their terms. */
  isByTerm: boolean;
  /** The phone number that the page follows; '' for the first page. */
  after: string;
  size: number;
}

/** The parameters of a statement that reads a limited batch of a scan. */
export interface BatchParameters extends PageParameters {
  /** The largest number of phone numbers to read from the scan. */
  count: number;
}

/** How a statement casts each parameter. Lists of an enum are sent as text, since the driver knows no enums. */
const CASTS: Record<keyof BatchParameters, string> = {
  phoneNumber: 'text',
  businessProfileId: 'uuid[]',
  reportingGroup: 'text[]',
  internalName: 'text[]',
  carrier: 'text[]',
  feature: `text[]::${feature.enumName}[]`,
  detailedStatus: `text[]::${detailedStatus.enumName}[]`,
  status: `text[]::${status.enumName}[]`,
  dottedStatus: `text[]::${detailedStatus.enumName}[]`,
  isByTerm: 'boolean',
  after: 'text',
  size: 'int',
  count: 'int',
};

/** Returns a parameter with its cast, such as `$1::text[]`. */
export function parameter(name: keyof BatchParameters): SQL {
  return sql`${sql.placeholder(name)}::${sql.raw(CASTS[name])}`;
}

/** Makes a piece of SQL of text, other pieces, and tables and columns of the schema, which become bare names. */
export function fragment(text: TemplateStringsArray, ...parts: readonly (SQL | Table | Column)[]): SQL {
  const pieces = parts.map((part) => {
    if (is(part, Column)) return sql.raw(part.name);
    return is(part, Table) ? sql.raw(getTableName(part)) : part;
  });
  return sql(text, ...pieces);
}
