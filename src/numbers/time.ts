/** Times as texts (RFC 3339). */

const RFC_3339 =
  /^(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/i;

/** Whether a text is a time that both the database and an answer can show: no leap second, and in UTC of the years 1 to 9999. */
export function isTime(text: string): boolean {
  if (!RFC_3339.test(text)) return false;
  const date = text.slice(0, 10);
  // Date takes the 30th of February for the 2nd of March.
  if (date.slice(8) > '28' && !new Date(date).toISOString().startsWith(date)) return false;
  return /^(?!0000)\d{4}-/.test(inUtc(text));
}

/** The same time, in UTC with milliseconds. */
export function inUtc(text: string): string {
  return text.length === 24 && text[10] === 'T' && text.endsWith('Z')
    ? text
    : new Date(text.toUpperCase()).toISOString();
}
