/**
 * The columns of a spreadsheet of numbers. Either each entry has a row, in which the number's other columns are repeated, or each
 * number has a row, and each carrier and feature a column.
 */
import { Feature } from '../../../generated/types/models/index.js';
import type { Schema } from '../../contract.js';
import { cut, escapeHidden } from '../../messages/shown.js';
import { nearest } from '../../messages/suggestion.js';
import type { Row } from './csvRows.js';
import { InputError } from './lines.js';
import { numberSchema } from './numberSchema.js';

/** A column: a member of the item, or of its parent in the item. */
interface Column {
  name: string;
  member: string;
  parent?: string | undefined;
  isRequired?: boolean;
  /** The carrier and feature of a column that has their detailed status. */
  entry?: { carrier: string; feature: string };
}

export const isOfEntry = ({ parent }: Column) => parent === 'carrierStatuses';

/** Returns a column for each member, named by its path. An entry's member needs none if the number has no such member. */
const columnsOf = ({ properties = {}, required = [] }: Schema, parent?: string): Column[] =>
  Object.entries(properties).flatMap(([member, schema]) => {
    const object = schema.items ?? schema;
    if (object.properties) return columnsOf(object, member);
    const column = { name: member, member, parent, isRequired: required.includes(member) };
    const isUnique = isOfEntry(column) && !numberSchema.properties?.[member];
    return parent && !isUnique ? { ...column, name: `${parent}.${member}` } : column;
  });

/** All columns with a row for each entry, in the order of an export: the required ones first, and of both the entry's last. */
export const COLUMNS = [true, false].flatMap((isRequired) =>
  columnsOf(numberSchema)
    .filter((column) => column.isRequired === isRequired)
    .sort((a, b) => Number(isOfEntry(a)) - Number(isOfEntry(b))),
);
const REQUIRED = COLUMNS.filter(({ isRequired }) => isRequired);

/** Returns the column of this name, or of the nearest one. It may be that of a carrier and feature, such as `AT&T brandedCallerId`. */
function columnOf(name: string, find: typeof nearest = exact): Column | undefined {
  const names = COLUMNS.map((column) => column.name);
  const index = names.indexOf(find(name, names) ?? '');
  if (index >= 0) return COLUMNS[index];
  const [, carrier, word = ''] = /^(.*\S)\s+(\S+)$/s.exec(name) ?? [];
  const feature = find(word, Object.values(Feature));
  if (!carrier || !feature) return undefined;
  const entry = { carrier, feature };
  return { name: `${carrier} ${feature}`, parent: 'carrierStatuses', member: 'detailedStatus', entry };
}

const exact: typeof nearest = (text, candidates) => [...candidates].find((candidate) => candidate === text);

export type Header = ReturnType<typeof readHeader>;

/** Reads the names of the columns. @throws {InputError} with all faults, one for each name */
export function readHeader({ line, cells }: Row) {
  const names = cells.map((cell) => cell.trim());
  const columns = names.map((name) => columnOf(name));
  if (!columns.some(Boolean)) {
    const required = REQUIRED.map(({ name }) => name).join(', ');
    throw new InputError([{ line, reason: `must name the columns, without rows above: ${required}` }]);
  }
  // A misspelled column is a fault, but not missing.
  const recognized = names.flatMap((name, i) => columns[i] ?? columnOf(name, nearest) ?? []);
  const carrierColumn = recognized.find(({ entry }) => entry);
  const entryColumn = recognized.find((column) => isOfEntry(column) && !column.entry);
  const faults = names.flatMap((name, i) => {
    if (name && !columns[i]) return describeUnknown(name);
    return name && names.indexOf(name) < i ? `has two columns ${shown(name)}: delete one` : [];
  });
  for (const column of REQUIRED) {
    const isMissing = !recognized.some(({ name }) => name === column.name) && (entryColumn || !isOfEntry(column));
    if (isMissing) faults.push(`has no column ${column.name}: add it`);
  }
  if (carrierColumn && entryColumn)
    faults.push(`has ${entryColumn.name} and ${shown(carrierColumn.name)}: delete the columns of one kind`);
  if (!carrierColumn && !entryColumn)
    faults.push('has neither a column carrier nor one such as AT&T brandedCallerId: add them');
  if (faults.length > 0) throw new InputError(faults.map((reason) => ({ line, reason })));
  const known = columns.flatMap((column, i) => (column ? [{ ...column, i }] : []));
  const ofEntries = known.filter(isOfEntry);
  return {
    columns,
    phoneNumber: columns.findIndex((column) => column?.name === 'phoneNumber'),
    /** The columns of the number that an import reads. */
    ofNumber: known.filter((column) => !isOfEntry(column) && column.name !== 'status'),
    /** The columns of each entry that a row may have. */
    ofEntries: carrierColumn ? ofEntries.map((column) => [column]) : [ofEntries],
    hasEntryRows: !carrierColumn,
  };
}

function describeUnknown(name: string): string {
  const meant = columnOf(name, nearest);
  const advice = meant ? `did you mean ${shown(meant.name)}?` : 'delete it, or rename it as in docs/imports.md';
  return `${shown(name)} is not a column of a spreadsheet of numbers; ${advice}`;
}

const shown = (text: string) => cut(escapeHidden(text));
