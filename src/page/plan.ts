/**
 * Which ranges of which indexes a page is read from. Nothing here knows SQL or the data: the choice follows from how many
 * values the filter has, and from how far earlier batches of candidates went without filling the page.
 */
import { DetailedStatus, Feature, Status } from '../../generated/types/models/index.js';
import type { Filter } from '../request/filter.js';

/** What a number belongs to, as a filter names it. */
export const ATTRIBUTES = ['businessProfiles', 'reportingGroups', 'internalNames'] as const;
export type Attribute = (typeof ATTRIBUTES)[number];

/**
 * Ranges of an index, in each of which the phone numbers are in the order of the pages: of the items or the postings,
 * one range for each value of `attribute` (all items if it is null) and, of the postings, for each wanted term.
 */
export interface Scan {
  of: 'items' | 'postings';
  attribute: Attribute | null;
}

/** What a filter asks for, counted. */
export interface Counts {
  phoneNumber: boolean;
  /** The attributes that the filter names, with the number of their values. */
  attributes: ReadonlyMap<Attribute, number>;
  /** The most terms that the filter can mean; null where it asks for no status and no entry. */
  terms: number | null;
}

export type Step =
  /** All numbers match. */
  | { read: 'all' }
  /** One number, tested. */
  | { read: 'number' }
  /** What matches is exactly what is in the ranges of `scan`. */
  | { read: 'ranges'; scan: Scan }
  /** What matches is in the ranges of each of `scans`, among other numbers: a batch of one of them is tested. */
  | { read: 'candidates'; scans: readonly CandidateScan[] };

export interface CandidateScan {
  scan: Scan;
  /** What it costs to test one of its candidates, where it costs 1 to test one on the index that it was found in. */
  cost: number;
}

/** What it costs to test a candidate on its row, in tests on the index that it was found in. */
const COST_OF_ROW = 4;
/** And to read a page from exact ranges, for each of them. */
const COST_OF_EXACT_RANGE = 4;
/** And to compare a scan by its reach and find its candidates, for each of its ranges. */
const COST_OF_COMPARED_RANGE = 8;

/**
 * The next step towards a page. Where one index has exactly what is asked for, its ranges are read as soon as that costs
 * no more than `batch`, in tests of candidates; otherwise as many candidates are tested as that pays for.
 */
export function nextStep({ phoneNumber, attributes, terms }: Counts, batch: number): Step {
  if (phoneNumber) return { read: 'number' };
  if (attributes.size === 0 && terms === null) return { read: 'all' };
  const named = [...attributes.keys()];
  const isCheap = (ranges: number, cost: number) => ranges * cost <= batch;
  if (named.length < 2) {
    const [attribute = null] = named;
    if (terms === null) return { read: 'ranges', scan: { of: 'items', attribute } };
    const values = attribute === null ? 1 : (attributes.get(attribute) ?? 1);
    if (isCheap(values * terms, COST_OF_EXACT_RANGE)) return { read: 'ranges', scan: { of: 'postings', attribute } };
  }
  const ofItems = (named.length > 0 ? named : [null]).map((attribute) => ({ of: 'items' as const, attribute }));
  return {
    read: 'candidates',
    scans: [
      ...ofItems.map((scan) => ({ scan, cost: named.length < 2 ? COST_OF_ROW : 1 })),
      ...scansOfPostings().map((scan) => ({ scan, cost: COST_OF_ROW })),
    ],
  };

  /** The terms within the attribute that has the fewest values, or the terms alone; none if there are too many ranges. */
  function scansOfPostings(): Scan[] {
    if (terms === null || !isCheap(terms, COST_OF_COMPARED_RANGE)) return [];
    const valuesOf = (name: Attribute) => attributes.get(name) ?? 1;
    const [narrowest] = named.toSorted((one, other) => valuesOf(one) - valuesOf(other));
    const isNarrow =
      named.length > 1 && narrowest !== undefined && isCheap(valuesOf(narrowest) * terms, COST_OF_COMPARED_RANGE);
    return [{ of: 'postings', attribute: isNarrow ? narrowest : null }];
  }
}

/** Counts what is asked; `businessProfiles` are those of the filter that may be seen, null for all. */
export function countsOf(filter: Filter, businessProfiles: readonly string[] | null): Counts {
  const values = { ...filter, businessProfiles };
  const attributes = ATTRIBUTES.flatMap((name) => {
    const list = values[name];
    return list === null ? [] : [[name, list.length] as const];
  });
  return { phoneNumber: filter.phoneNumber !== null, attributes: new Map(attributes), terms: maxTerms(filter) };
}

/** Highest priority first, as specification 3.2 has them. */
const STATUSES = Object.values(Status);

/** The place in `STATUSES` of a number's status when it has such entries only. */
function priorityOf(detailedStatus: DetailedStatus): number {
  if (detailedStatus === 'approved.optOut') return 3;
  if (detailedStatus === 'approved.optIn') return 2;
  return detailedStatus.startsWith('rejected.') ? 1 : 0;
}

/** How many terms the filter means if all that could exist do; null if it asks for none. */
export function maxTerms({ carriers, features, detailedStatuses, statuses, dottedStatuses }: Filter): number | null {
  const byStatus = statuses !== null || dottedStatuses !== null;
  const byEntry = carriers !== null || features !== null || detailedStatuses !== null;
  if (!byStatus && !byEntry) return null;
  // An entry's number has the status of the entry, or one of a higher priority because of another entry.
  const pairs = (detailedStatuses ?? Object.values(DetailedStatus)).flatMap((detailedStatus) =>
    STATUSES.slice(0, priorityOf(detailedStatus) + 1).filter(
      (status) => !byStatus || statuses?.includes(status) || dottedStatuses?.includes(detailedStatus),
    ),
  );
  const ofEntries = (carriers?.length ?? 1) * (features ?? Object.values(Feature)).length * pairs.length;
  return ofEntries + (!byEntry && statuses?.includes('unregistered') ? 1 : 0);
}
