/** Medians and other quantiles of repeated measurements. */

export interface Quantiles {
  median: number;
  p95: number;
  p99: number;
}

interface Measurement {
  measure(): Promise<number>;
}

export function quantiles(values: number[]): Quantiles {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (part: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN;
  return { median: at(0.5), p95: at(0.95), p99: at(0.99) };
}

/**
 * Calls each `measure` once per round, in random order, so that other load on the machine affects all alike. Returns the
 * measurements, in the order given, with the medians of their values.
 */
export async function mediansInTurn<T extends Measurement>(
  measurements: T[],
  rounds: number,
): Promise<(T & { median: number })[]> {
  const all = measurements.map((measurement) => ({ measurement, values: [] as number[] }));
  for (let round = 1; round <= rounds; round++) {
    console.error(`  round ${round} of ${rounds}`);
    const shuffled = all.map((each) => ({ ...each, rank: Math.random() })).sort((a, b) => a.rank - b.rank);
    for (const { measurement, values } of shuffled) {
      values.push(await measurement.measure());
    }
  }
  return all.map(({ measurement, values }) => ({ ...measurement, median: quantiles(values).median }));
}
