/** The filter of a request. Requests that differ only in the order or repetition of values have the same filter. */
import type { ListBrandedPhoneNumbersRequest } from '../../generated/types/apis/index.js';
import type { DetailedStatus, Feature } from '../../generated/types/models/index.js';
import { isDetailedStatus, type Status } from '../status.js';

/** Named like the contract's parameters; null if the request leaves one out. Lists are sorted and have no repeats. */
export interface Filter {
  phoneNumber: string | null;
  /** A request names at most one id. `limitToProfiles` may set several, or none if the client may not see that one. */
  businessProfileId: readonly string[] | null;
  reportingGroup: readonly string[] | null;
  internalName: readonly string[] | null;
  carrier: readonly string[] | null;
  feature: readonly Feature[] | null;
  detailedStatus: readonly DetailedStatus[] | null;
  /** The values of the parameter `status` that a number can have, such as `approved`. */
  status: readonly Status[] | null;
  /** Its dotted values, such as `approved.optIn`, which an entry can have. A number matches by any of these or of `status`. */
  dottedStatus: readonly DetailedStatus[] | null;
}

/** Returns the filter of a validated request. */
export function filterOf(request: ListBrandedPhoneNumbersRequest): Filter {
  return {
    phoneNumber: request.phoneNumber ?? null,
    businessProfileId: request.businessProfileId === undefined ? null : [request.businessProfileId.toLowerCase()],
    reportingGroup: sorted(request.reportingGroup),
    internalName: sorted(request.internalName),
    carrier: sorted(request.carrier),
    feature: sorted(request.feature),
    detailedStatus: sorted(request.detailedStatus),
    status: sorted(request.status?.filter((value) => !isDetailedStatus(value))),
    dottedStatus: sorted(request.status?.filter(isDetailedStatus)),
  };
}

/** Returns `filter` limited to the business profiles `visible`, by their ids; null means that all are visible. */
export function limitToProfiles(filter: Filter, visible: readonly string[] | null): Filter {
  if (visible === null) return filter;
  const { businessProfileId } = filter;
  return { ...filter, businessProfileId: businessProfileId?.filter((id) => visible.includes(id)) ?? visible };
}

function sorted<T extends string>(values: readonly T[] | undefined): T[] | null {
  return values?.length ? [...new Set(values)].sort() : null;
}
