/** The overall statuses, and how to tell them from detailed ones: the `status` filter takes both. */
import { DetailedStatus, StatusFilter } from '../generated/types/models/index.js';

export type Status = Exclude<StatusFilter, DetailedStatus>;

const DETAILED_STATUSES: ReadonlySet<string> = new Set(Object.values(DetailedStatus));

export function isDetailedStatus(value: StatusFilter): value is DetailedStatus {
  return DETAILED_STATUSES.has(value);
}

/** A number's statuses, highest priority first (specification 3.2). */
export const STATUSES: readonly Status[] = Object.values(StatusFilter).filter((value) => !isDetailedStatus(value));
