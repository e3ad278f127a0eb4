/** How the embedded PostgreSQL reports what prevents it from working. */
import { UserError } from '../userError.js';

/** An error for the user: `problem` is a sentence about the embedded PostgreSQL that ends with what to do. */
export function unusable(problem: string, cause?: unknown): UserError {
  return new UserError(`The embedded PostgreSQL ${problem}, or set DATABASE_URL to a PostgreSQL of your own.`, {
    cause,
  });
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
