/** Finds the package's own files, from src/ and from dist/, and names its command. */
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

export const packageFolder = dirname(createRequire(import.meta.url).resolve('#package.json'));
export const migrationsFolder = join(packageFolder, 'drizzle');

const NAME = 'branded-phone-numbers';
/** What a user types to run the command: where a checkout has a link to it, a shell finds that only by its path. */
export const commandName = process.argv[1] === join(process.cwd(), NAME) ? `./${NAME}` : NAME;
