/** Seeds of random tests that do not use fast-check, which prints its own. */

/** Returns and prints a new seed, or the one in the environment variable SEED. */
export function freshSeed(): number {
  const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
  console.log(`SEED=${seed}`);
  return seed;
}
