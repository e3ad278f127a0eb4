/** Finds the package's own files, from src/ and from dist/. */
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

export const packageFolder = dirname(createRequire(import.meta.url).resolve('#package.json'));
/** The migrations of the database, in Drizzle's format. */
export const migrationsFolder = join(packageFolder, 'drizzle');
