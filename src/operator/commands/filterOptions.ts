/** The list's filters as command-line options, with the names, bounds and checks of the contract. */
import type { Command } from 'commander';
import { listBrandedPhoneNumbers as operation } from '../../../generated/types/apis/index.js';
import { parameters, resolve } from '../../contract.js';
import type { Filter } from '../../page/filter.js';
import { ProblemError } from '../../service/problem/problem.js';
import { UserError } from '../../userError.js';

/** The list's parameters, without those that choose a page. */
const filters = [...parameters.values()].filter(({ name }) => !['nextCursor', 'size'].includes(name));

/** Adds an option to `command` for each filter; it is repeatable if the parameter is. */
export function addFilterOptions(command: Command): void {
  for (const { name, description = '', schema } of filters) {
    const { enum: choices = [] } = resolve(schema.items ?? schema);
    const [sentence = ''] = description.replaceAll(/\s+/g, ' ').split(/(?<=\.) /, 1);
    const sentences = [sentence];
    if (choices.length > 0) sentences.push(`One of ${choices.map((choice) => JSON.stringify(choice)).join(', ')}.`);
    if (schema.type === 'array') sentences.push('Repeatable.');
    const collect = (value: string, previous: string[] = []) => [...previous, value];
    command.option(`${flagOf(name)} <value>`, sentences.join(' '), collect);
  }
}

/** Returns the filter that a command's options specify. @throws {UserError} with a line for each invalid value */
export async function readFilter(options: Record<string, string[] | undefined>): Promise<Filter> {
  const search = new URLSearchParams(
    filters.flatMap(({ name }) => (options[name] ?? []).map((value): [string, string] => [name, value])),
  );
  const { readQuery } = await import('../../service/request/query.js');
  try {
    return (await readQuery(`${operation.path}?${search}`)).filter;
  } catch (error) {
    if (!(error instanceof ProblemError) || !error.problem.errors) throw error;
    const lines = error.problem.errors.map(({ parameter, detail }) => `${flagOf(parameter)} ${detail}`);
    throw new UserError(lines.join('\n'));
  }
}

/** Returns the option for a parameter: `--detailed-status` for `detailedStatus`. Commander converts it back. */
function flagOf(name: string): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}
