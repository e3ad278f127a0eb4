/** `npm run docs:table` generates the parameter table at the end of the README, between two markers, from the contract. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { type Parameter, parameters, requestHeaders, resolve } from '../src/contract.js';
import { timesWords, valueWords } from '../src/messages/parameterWords.js';
import { packageFolder } from '../src/packageFolder.js';
import { writeOrCheck } from './generatedFile.js';

const START = '<!-- parameters: made by `npm run docs:table` -->';
const END = '<!-- /parameters -->';

/** Returns `page` with a new table between its markers. */
export function withParameterTable(
  page: string,
  listed: Iterable<Parameter> = [...parameters.values(), ...requestHeaders.values()],
): string {
  const [start, end] = [page.indexOf(START), page.indexOf(END)];
  if (start < 0 || end < start) throw new Error(`the page needs a line "${START}" and, below it, a line "${END}"`);
  return `${page.slice(0, start + START.length)}\n${parameterTable(listed)}\n${page.slice(end)}`;
}

function parameterTable(listed: Iterable<Parameter>): string {
  const rows = [...listed].map(({ name, in: place, schema }) => {
    const item = schema.items ? resolve(schema.items) : schema;
    const value = item.enum ? item.enum.map((name) => `\`${name}\``).join(', ') : valueWords(item);
    const shown = `\`${name}\`${place === 'header' ? ' (request header)' : ''}`;
    return [shown, value, timesWords(schema)];
  });
  return [['Parameter', 'Value', 'Given'], ['---', '---', '---'], ...rows]
    .map((cells) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`)
    .join('\n');
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const readme = readFileSync(join(packageFolder, 'README.md'), 'utf8');
  writeOrCheck('README.md', withParameterTable(readme), 'docs:table');
}
