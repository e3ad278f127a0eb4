/** The specification and the contract as plain code in memory: the responses that the service should send. */
import type { ListBrandedPhoneNumbersRequest } from '../../generated/types/apis/index.js';
import type { BrandedPhoneNumber, CarrierStatus } from '../../generated/types/models/index.js';
import type { Status } from '../../src/status.js';

/** The filters of a request. */
export type Query = Omit<ListBrandedPhoneNumbersRequest, 'nextCursor' | 'size'>;

/** Returns the status of a number with these entries, by the table of specification 3.2. */
export function overallStatus(entries: readonly Pick<CarrierStatus, 'detailedStatus'>[]): Status {
  const any = (test: RegExp) => entries.some(({ detailedStatus }) => test.test(detailedStatus));
  if (any(/^(pending|submitted)\./)) return 'submitted for review';
  if (any(/^rejected\./)) return 'rejected';
  if (any(/^approved\.optIn$/)) return 'approved';
  return 'unregistered';
}

/** Returns whether a number matches, as "Filters" in the contract's description defines it. */
function matches(number: BrandedPhoneNumber, query: Query): boolean {
  const isWanted = (values: readonly string[] | undefined, value: string | null) =>
    values === undefined || (value !== null && values.includes(value));
  const ownFieldsMatch =
    (query.phoneNumber === undefined || query.phoneNumber === number.phoneNumber) &&
    (query.businessProfileId === undefined || query.businessProfileId.toLowerCase() === number.businessProfile.id) &&
    isWanted(query.reportingGroup, number.reportingGroup) &&
    isWanted(query.internalName, number.internalName);
  if (!ownFieldsMatch) return false;

  const hasStatus = (query.status ?? []).some((value) => value === number.status);
  const hasDottedStatus = (entry: CarrierStatus) =>
    (query.status ?? []).some((value) => value === entry.detailedStatus);
  if (!query.carrier && !query.feature && !query.detailedStatus) {
    return !query.status || hasStatus || number.carrierStatuses.some(hasDottedStatus);
  }
  return number.carrierStatuses.some(
    (entry) =>
      isWanted(query.carrier, entry.carrier) &&
      isWanted(query.feature, entry.feature) &&
      isWanted(query.detailedStatus, entry.detailedStatus) &&
      (!query.status || hasStatus || hasDottedStatus(entry)),
  );
}

/** Returns the numbers that match a query, in page order. */
export function find(numbers: readonly BrandedPhoneNumber[], query: Query): BrandedPhoneNumber[] {
  return numbers.filter((number) => matches(number, query)).sort((a, b) => byBytes(a.phoneNumber, b.phoneNumber));
}

export function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

/** Returns the query string that a client would send. */
export function searchOf(query: Query | Record<string, string | string[]>): string {
  const search = new URLSearchParams();
  for (const [name, values] of Object.entries(query)) {
    for (const value of [values].flat()) if (value !== undefined) search.append(name, value);
  }
  return search.toString();
}
