/** Times in the text format of RFC 3339. */

const RFC_3339 =
  /^(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/i;

/**
 * Returns whether a text is a time that both the database and a response can represent: not a leap second, and within
 * the years 1 to 9999 after conversion to UTC and rounding.
 */
export function isTime(text: string): boolean {
  if (!RFC_3339.test(text)) return false;
  const date = text.slice(0, 10);
  // Date reads 30 February as 2 March.
  if (date.slice(8) > '28' && !new Date(date).toISOString().startsWith(date)) return false;
  return /^(?!0000)\d{4}-/.test(inUtc(text));
}

const YEAR_2000 = Date.UTC(2000);

/**
 * Returns the time in UTC, rounded to milliseconds as PostgreSQL rounds a timestamp(3): first to microseconds, then
 * halves away from the year 2000. A time that rounds beyond the year 9999 gets a year of six digits.
 */
export function inUtc(text: string): string {
  if (text.length === 24 && text[10] === 'T' && text.endsWith('Z')) return text;
  const [, whole = '', fraction = '', offset = ''] = /^(.{19})(\.\d+)?(.+)$/.exec(text.toUpperCase()) ?? [];
  const second = Date.parse(`${whole}${offset}`);
  const microseconds = Math.round(Number(`0${fraction}`) * 1_000_000);
  const milliseconds =
    second < YEAR_2000 ? Math.ceil((microseconds - 500) / 1000) : Math.floor((microseconds + 500) / 1000);
  return new Date(second + milliseconds).toISOString();
}
