/** What a request asks for, without order, repeats and page: the same filter no matter how it is written. */
import type { ListBrandedPhoneNumbersRequest } from '../../generated/types/apis/index.js';
import { DetailedStatus, type Feature, type Status } from '../../generated/types/models/index.js';

/** Lists are sorted and without repeats; null stands for "not asked". */
export interface Filter {
  phoneNumber: string | null;
  businessProfileId: string | null;
  reportingGroups: string[] | null;
  internalNames: string[] | null;
  carriers: string[] | null;
  features: Feature[] | null;
  detailedStatuses: DetailedStatus[] | null;
  /** The values of `status` that are about the number. */
  statuses: Status[] | null;
  /** The values of `status` that are about an entry; a number matches by these or by `statuses`. */
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

const DETAILED_STATUSES: ReadonlySet<string> = new Set(Object.values(DetailedStatus));

/** Whether a value of the parameter `status` is a dotted one: about an entry, not the number. */
function isDetailedStatus(value: Status | DetailedStatus): value is DetailedStatus {
  return DETAILED_STATUSES.has(value);
}
