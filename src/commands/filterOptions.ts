/** The list's filters as options of a command: named, bounded and checked by the contract, as in a request. */
import type { Command } from 'commander';
import { listBrandedPhoneNumbers as operation } from '../../generated/types/apis/index.js';
import { parameters, resolve } from '../contract.js';
import { ProblemError } from '../problem/problem.js';
import type { Filter } from '../request/filter.js';
import { UserError } from '../userError.js';

/** The parameters of the list that say which numbers, not which page of them. */
const filters = [...parameters.values()].filter(({ name }) => !['nextCursor', 'size'].includes(name));

/** Adds an option for each filter to `command`, which may be repeated where the parameter may. */
export function addFilterOptions(command: Command): void {
  for (const { name, description = '', schema } of filters) {
    const { enum: choices = [] } = resolve(schema.items ?? schema);
    const notes = [
      firstSentence(description),
      choices.length > 0 ? `One of ${choices.map((choice) => JSON.stringify(choice)).join(', ')}.` : '',
      schema.type === 'array' ? 'Repeatable.' : '',
    ];
    command.option(
      `${flagOf(name)} <value>`,
      notes.filter(Boolean).join(' '),
      (value: string, earlier: string[] = []) => [...earlier, value],
    );
  }
}

/**
 * Reads the filter out of a command's options.
 * @throws {UserError} naming every value that would be invalid in a request, too
 */
export async function readFilter(options: Record<string, string[] | undefined>): Promise<Filter> {
  const search = new URLSearchParams(
    filters.flatMap(({ name }) => (options[name] ?? []).map((value): [string, string] => [name, value])),
  );
  // Loaded only here, since every other command starts faster without it.
  const { readQuery } = await import('../request/query.js');
  try {
    return (await readQuery(`${operation.path}?${search}`)).filter;
  } catch (error) {
    if (!(error instanceof ProblemError) || !error.problem.errors) throw error;
    throw new UserError(
      error.problem.errors.map(({ parameter, detail }) => `${flagOf(parameter)} ${detail}`).join('\n'),
    );
  }
}

/** `detailedStatus` → `--detailed-status`, which commander turns back. */
function flagOf(name: string): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

function firstSentence(text: string): string {
  return text.replaceAll(/\s+/g, ' ').replace(/(?<=\.) .*/, '');
}
