/**
 * The parameter table of the README, from the contract. `npm run docs:table` writes it between the markers;
 * with `--check` it writes nothing and fails if the README differs.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { timesWords, valueWords } from '../browser/parameterWords.js';
import { type Parameter, parameters, resolve } from '../src/contract.js';
import { packageFolder } from '../src/packageFolder.js';

const START = '<!-- parameters: made by `npm run docs:table` -->';
const END = '<!-- /parameters -->';

/** `page` with the table between its markers regenerated. */
export function withParameterTable(page: string, from: Iterable<Parameter> = parameters.values()): string {
  const [start, end] = [page.indexOf(START), page.indexOf(END)];
  if (start < 0 || end < start) throw new Error(`The page needs a line "${START}" and, below it, a line "${END}".`);
  return `${page.slice(0, start + START.length)}\n${parameterTable(from)}\n${page.slice(end)}`;
}

function parameterTable(from: Iterable<Parameter>): string {
  const rows = [...from].map(({ name, schema, description = '' }) => {
    const item = schema.items ? resolve(schema.items) : schema;
    const value = item.enum ? item.enum.map((each) => `\`${each}\``).join(', ') : valueWords(item);
    return [`\`${name}\``, value, timesWords(schema), description.trim().replaceAll('\n', ' ')];
  });
  return [['Parameter', 'Value', 'Given', 'Meaning'], ['---', '---', '---', '---'], ...rows]
    .map((cells) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`)
    .join('\n');
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const readme = join(packageFolder, 'README.md');
  const written = readFileSync(readme, 'utf8');
  const right = withParameterTable(written);
  if (right === written) console.log('The parameter table of README.md is that of the contract.');
  else if (process.argv.includes('--check')) {
    console.error('The parameter table of README.md is not that of the contract: run `npm run docs:table`.');
    process.exitCode = 1;
  } else {
    writeFileSync(readme, right);
    console.log('Wrote the parameter table of README.md.');
  }
}
