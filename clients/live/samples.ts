/** Reads the instructions and programs of the clients' READMEs. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const readme = (client: string) => readFileSync(join(import.meta.dirname, '..', client, 'README.md'), 'utf8');

/** Returns the first code block in `language` of the README of `client`. */
export function block(client: string, language: string): string {
  const [, code] = new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'ms').exec(readme(client)) ?? [];
  if (!code) throw new Error(`clients/${client}/README.md has no ${language} code`);
  return code;
}

/** Returns the program of the README of `client`, with the address of the service replaced by `url`. */
export function sample(client: string, language: string, url: string): string {
  const code = block(client, language);
  const replaced = code.replaceAll('http://localhost:3000', url);
  if (replaced === code)
    throw new Error(`the ${language} sample of clients/${client}/README.md does not contain http://localhost:3000`);
  return replaced;
}

/** Returns the file in which the README of `client` says to save its program, and the command that runs it. */
export function program(client: string): { file: string; command: string } {
  const words = readme(client).replace(/\s+/g, ' ');
  const [, file, command] = /Save it as `(.+?)` and run it with `(.+?)`/.exec(words) ?? [];
  if (!file || !command) throw new Error(`clients/${client}/README.md does not say how to run its program`);
  return { file, command };
}
