/** The rule that makes one status of many (specification 3.2), as far as a query needs it; the database applies it. */
import { DetailedStatus, type Status } from '../generated/types/models/index.js';

const DETAILED_STATUSES: ReadonlySet<string> = new Set(Object.values(DetailedStatus));

/** Whether a value of the parameter `status` is a dotted one, which speaks of an entry and not of the number. */
export function isDetailedStatus(value: Status | DetailedStatus): value is DetailedStatus {
  return DETAILED_STATUSES.has(value);
}
