/** Reads the instructions and programs of the clients' READMEs. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const readme = (client: string) => readFileSync(join(import.meta.dirname, '..', client, 'README.md'), 'utf8');

/** Returns the code block in `language` of the README of `client` that has `text`, by default the first. */
function block(client: string, language: string, text = ''): string {
  const blocks = readme(client).match(new RegExp(`(?<=^\`\`\`${language}\\n).*?(?=^\`\`\`)`, 'gms'));
  const code = blocks?.find((found) => found.includes(text));
  if (!code) throw new Error(`clients/${client}/README.md has no ${language} code${text && ` with ${text}`}`);
  return code;
}

/** Returns a program of the README of `client`, as `block` does, with the address of the service replaced by `url`. */
export function sample(client: string, language: string, url: string, text?: string): string {
  const code = block(client, language, text);
  const replaced = code.replaceAll('http://localhost:3000', url);
  if (replaced === code)
    throw new Error(`the ${language} sample of clients/${client}/README.md does not contain http://localhost:3000`);
  return replaced;
}

/** Returns the files in which the README of `client` says to save its programs, and the commands that run them. */
export function programs(client: string): { file: string; command: string }[] {
  const words = readme(client).replace(/\s+/g, ' ');
  const found = [...words.matchAll(/Save it as `(.+?)` and run it with `(.+?)`/g)];
  return found.map(([, file = '', command = '']) => ({ file, command }));
}
