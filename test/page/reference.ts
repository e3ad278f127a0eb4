/** The specification and the contract in plain code, in memory: what the service should return. */
import type { ListBrandedPhoneNumbersRequest } from '../../generated/types/apis/index.js';
import type { BrandedPhoneNumber, CarrierStatus, Status } from '../../generated/types/models/index.js';

/** The filters of a request. */
export type Query = Omit<ListBrandedPhoneNumbersRequest, 'nextCursor' | 'size'>;

/** Specification 3.2, its table from the top. */
export function overallStatus(entries: readonly Pick<CarrierStatus, 'detailedStatus'>[]): Status {
  const any = (test: RegExp) => entries.some(({ detailedStatus }) => test.test(detailedStatus));
  if (any(/^(pending|submitted)\./)) return 'submitted for review';
  if (any(/^rejected\./)) return 'rejected';
  if (any(/^approved\.optIn$/)) return 'approved';
  return 'unregistered';
}

/** Returns whether a number matches: "Filters" in the contract's description. */
function matches(number: BrandedPhoneNumber, query: Query): boolean {
  const isSelected = (values: readonly string[] | undefined, value: string | null) =>
    values === undefined || (value !== null && values.includes(value));
  const ownFieldsMatch =
    (query.phoneNumber === undefined || query.phoneNumber === number.phoneNumber) &&
    (query.businessProfileId === undefined || query.businessProfileId.toLowerCase() === number.businessProfile.id) &&
    isSelected(query.reportingGroup, number.reportingGroup) &&
    isSelected(query.internalName, number.internalName);
  if (!ownFieldsMatch) return false;

  const isInL = (query.status ?? []).some((value) => value === number.status);
  const isInD = (entry: CarrierStatus) => (query.status ?? []).some((value) => value === entry.detailedStatus);
  if (!query.carrier && !query.feature && !query.detailedStatus) {
    return !query.status || isInL || number.carrierStatuses.some(isInD);
  }
  return number.carrierStatuses.some(
    (entry) =>
      isSelected(query.carrier, entry.carrier) &&
      isSelected(query.feature, entry.feature) &&
      isSelected(query.detailedStatus, entry.detailedStatus) &&
      (!query.status || isInL || isInD(entry)),
  );
}

/** Returns the numbers that match a query, in page order. */
export function find(numbers: readonly BrandedPhoneNumber[], query: Query): BrandedPhoneNumber[] {
  return numbers.filter((number) => matches(number, query)).sort((a, b) => byBytes(a.phoneNumber, b.phoneNumber));
}

export function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

/** Returns a query as a client would write it. */
export function searchOf(query: Query | Record<string, string | string[]>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const single of [value].flat()) if (single !== undefined) search.append(name, single);
  }
  return search.toString();
}
