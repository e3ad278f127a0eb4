/** The option for the format of files. */
import { Option } from 'commander';

const FORMATS = ['ndjson', 'csv'] as const;
export type Format = (typeof FORMATS)[number];

export const formatOption = () =>
  new Option('--format <format>', 'by default, csv for a name that ends in .csv, ndjson for others').choices(FORMATS);

/** Returns the format of a file by its name. */
export const formatOf = (name: string): Format => (/\.csv$/i.test(name) ? 'csv' : 'ndjson');
