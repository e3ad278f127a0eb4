/** The specification and the contract in plain code, in memory: what the service should answer, and no more. */
import type {
  BrandedPhoneNumber,
  CarrierStatus,
  DetailedStatus,
  Feature,
  Status,
  StatusFilter,
} from '../../generated/types/models/index.js';

export interface Query {
  phoneNumber?: string;
  businessProfileId?: string;
  reportingGroup?: string[];
  internalName?: string[];
  carrier?: string[];
  feature?: Feature[];
  status?: StatusFilter[];
  detailedStatus?: DetailedStatus[];
}

/** Specification 3.2, its table from the top. */
export function overallStatus(entries: readonly Pick<CarrierStatus, 'detailedStatus'>[]): Status {
  const any = (test: RegExp) => entries.some(({ detailedStatus }) => test.test(detailedStatus));
  if (any(/^(pending|submitted)\./)) return 'submitted for review';
  if (any(/^rejected\./)) return 'rejected';
  if (any(/^approved\.optIn$/)) return 'approved';
  return 'unregistered';
}

/** Whether a number matches: "Filters" in the contract's description. */
function matches(number: BrandedPhoneNumber, query: Query): boolean {
  const isAsked = (values: readonly string[] | undefined, value: string | null) =>
    values === undefined || (value !== null && values.includes(value));
  const ownFieldsMatch =
    (query.phoneNumber === undefined || query.phoneNumber === number.phoneNumber) &&
    (query.businessProfileId === undefined || query.businessProfileId.toLowerCase() === number.businessProfile.id) &&
    isAsked(query.reportingGroup, number.reportingGroup) &&
    isAsked(query.internalName, number.internalName);
  if (!ownFieldsMatch) return false;

  const isInL = (query.status ?? []).some((value) => value === number.status);
  const isInD = (entry: CarrierStatus) => (query.status ?? []).some((value) => value === entry.detailedStatus);
  if (!query.carrier && !query.feature && !query.detailedStatus) {
    return !query.status || isInL || number.carrierStatuses.some(isInD);
  }
  return number.carrierStatuses.some(
    (entry) =>
      isAsked(query.carrier, entry.carrier) &&
      isAsked(query.feature, entry.feature) &&
      isAsked(query.detailedStatus, entry.detailedStatus) &&
      (!query.status || isInL || isInD(entry)),
  );
}

/** The numbers that a query finds, in the order of the pages. */
export function find(numbers: readonly BrandedPhoneNumber[], query: Query): BrandedPhoneNumber[] {
  return numbers.filter((number) => matches(number, query)).sort((a, b) => byBytes(a.phoneNumber, b.phoneNumber));
}

export function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

/** A query as a client would write it. */
export function searchOf(query: Query | Record<string, string | string[]>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of [value].flat()) if (each !== undefined) search.append(name, each);
  }
  return search.toString();
}
