/** A request, as the client saw it; times are in milliseconds. */
interface Outcome {
  status: number | undefined;
  sent: number;
  came: number;
}

/** The most requests that were both sent and let through within one second: these certainly passed in that second. */
export function mostInASecond(responses: readonly Outcome[]): number {
  const passed = responses.filter(({ status }) => status === 200);
  return Math.max(
    0,
    ...passed.map(({ sent }) => passed.filter((each) => each.sent >= sent && each.came < sent + 1000).length),
  );
}
