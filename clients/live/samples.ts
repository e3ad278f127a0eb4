/** The sample code of the READMEs, as a user would run it. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The code block in `language` of the README of `client`, changed to ask the service at `url`. */
export function sample(client: string, language: string, url: string): string {
  const readme = readFileSync(join(import.meta.dirname, '..', client, 'README.md'), 'utf8');
  const [, code] = new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'ms').exec(readme) ?? [];
  if (!code) throw new Error(`clients/${client}/README.md has no ${language} code`);
  const moved = code.replaceAll('http://localhost:3000', url);
  if (moved === code) throw new Error(`the ${language} sample of clients/${client}/README.md asks no service`);
  return moved;
}
