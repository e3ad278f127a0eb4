/** Responses with the times of their requests. */

export interface TimedResponse {
  /** Undefined if the connection was refused, or ended before the response began. */
  status: number | undefined;
  /** When the request was sent and when the response ended, in milliseconds. */
  sentAt: number;
  endedAt: number;
}

/** Returns the maximum number of requests that were sent and allowed within one second, on the client's clock. */
export function mostInASecond(responses: readonly TimedResponse[]): number {
  const passed = responses.filter(({ status }) => status === 200);
  return Math.max(
    0,
    ...passed.map(
      ({ sentAt }) => passed.filter((other) => other.sentAt >= sentAt && other.endedAt < sentAt + 1000).length,
    ),
  );
}

/** Returns the statuses that occur, in order. */
export const statusesOf = (responses: readonly TimedResponse[]) =>
  [...new Set(responses.map(({ status }) => status))].sort();

/** Counts the responses by status; those without a status count as `none`. */
export function countByStatus(responses: readonly TimedResponse[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status = 'none' } of responses) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}
