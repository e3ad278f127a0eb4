/** Returns a count with its noun, such as "1 number" or "2 numbers". */
export function countOf(count: number, noun: string, plural = `${noun}s`): string {
  return `${count} ${count === 1 ? noun : plural}`;
}

/** Returns the counts of an import or export: "2 numbers, 1 carrier status". */
export function countsOf({ numbers, carrierStatuses }: { numbers: number; carrierStatuses: number }): string {
  return `${countOf(numbers, 'number')}, ${countOf(carrierStatuses, 'carrier status', 'carrier statuses')}`;
}
