/** A response with the times when the request was sent and when the response ended, in milliseconds. */
interface Outcome {
  status: number | undefined;
  sent: number;
  came: number;
}

/** Returns the maximum number of requests that were sent and allowed within one second, on the client's clock. */
export function mostInASecond(responses: readonly Outcome[]): number {
  const passed = responses.filter(({ status }) => status === 200);
  return Math.max(
    0,
    ...passed.map(({ sent }) => passed.filter((each) => each.sent >= sent && each.came < sent + 1000).length),
  );
}
