/** What tests that sample try at random; fast-check itself prints the seed of an `assert` that fails. */

/** A new seed for each run, which is printed; SEED=… in the environment repeats one. */
export function freshSeed(): number {
  const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
  console.log(`SEED=${seed}`);
  return seed;
}
