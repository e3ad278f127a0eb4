/** The code of what was thrown, by the system, the driver or PostgreSQL; empty where it has none. */
export function codeOf(error: unknown): string {
  const { code } = error as { code?: unknown };
  return typeof code === 'string' ? code : '';
}
