/** Reads the sample programs of the READMEs. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Returns the code block in `language` from the README of `client`, with the address of the service replaced by `url`.
 */
export function sample(client: string, language: string, url: string): string {
  const readme = readFileSync(join(import.meta.dirname, '..', client, 'README.md'), 'utf8');
  const [, code] = new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'ms').exec(readme) ?? [];
  if (!code) throw new Error(`clients/${client}/README.md has no ${language} code`);
  const replaced = code.replaceAll('http://localhost:3000', url);
  if (replaced === code)
    throw new Error(`the ${language} sample of clients/${client}/README.md does not contain http://localhost:3000`);
  return replaced;
}
