/** What a request asks for, without its order, repeats and page: the same filter however it is written. */
import type { ListBrandedPhoneNumbersRequest } from '../generated/types/apis/index.js';
import type { DetailedStatus, Feature, Status } from '../generated/types/models/index.js';
import { isDetailedStatus } from './status.js';

/** Lists are sorted and without repeats; null stands for "not asked". */
export interface Filter {
  phoneNumber: string | null;
  businessProfileId: string | null;
  reportingGroups: string[] | null;
  internalNames: string[] | null;
  carriers: string[] | null;
  features: Feature[] | null;
  detailedStatuses: DetailedStatus[] | null;
  /** The values of `status` that speak of the number. */
  statuses: Status[] | null;
  /** The values of `status` that speak of an entry; with `statuses` they widen. */
  dottedStatuses: DetailedStatus[] | null;
}

/** Reads the filter out of a validated request. */
export function filterOf(request: ListBrandedPhoneNumbersRequest): Filter {
  return {
    phoneNumber: request.phoneNumber ?? null,
    businessProfileId: request.businessProfileId?.toLowerCase() ?? null,
    reportingGroups: sorted(request.reportingGroup),
    internalNames: sorted(request.internalName),
    carriers: sorted(request.carrier),
    features: sorted(request.feature),
    detailedStatuses: sorted(request.detailedStatus),
    statuses: sorted(request.status?.filter((value) => !isDetailedStatus(value)) as Status[] | undefined),
    dottedStatuses: sorted(request.status?.filter(isDetailedStatus)),
  };
}

function sorted<T extends string>(values: readonly T[] | undefined): T[] | null {
  return values?.length ? [...new Set(values)].sort() : null;
}
