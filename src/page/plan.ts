/**
 * Chooses the index ranges that a page is read from. Nothing here knows SQL or the data: the choice follows from how
 * many values the filter has, and from a budget, which grows with each batch that leaves the page unfilled.
 */
import { DetailedStatus, Feature } from '../../generated/types/models/index.js';
import { STATUSES, type Status } from '../status.js';
import type { Filter } from './filter.js';

/** The attributes of a number. `Filter`, `items` and `postings` use the same names. */
export const ATTRIBUTES = ['businessProfileId', 'reportingGroup', 'internalName'] as const;
type Attribute = (typeof ATTRIBUTES)[number];

/**
 * Ranges of an index, each of which has its phone numbers in page order. In `items`, there is a range for each value of
 * `attribute`, or a single one if it is null; in `postings`, there are that many for each wanted term.
 */
export interface Scan {
  table: 'items' | 'postings';
  attribute: Attribute | null;
}

/** What to read next. */
export type Step =
  /** All numbers: the filter is empty. */
  | { read: 'all' }
  /** The one number that the filter names, which must also match the rest of the filter. */
  | { read: 'number' }
  /** The ranges of `scan`, which contain exactly the matching numbers. */
  | { read: 'ranges'; scan: Scan }
  /** A batch of candidates from one of `scans`. Each scan contains all matching numbers, but not only those. */
  | { read: 'candidates'; scans: readonly CandidateScan[] };

export interface CandidateScan {
  scan: Scan;
  /** The cost of testing one candidate, in the unit of `nextStep`. */
  cost: number;
}

/** The cost of testing a candidate on its row. */
const COST_OF_ROW = 4;
/** The cost of reading a page from exact ranges, for each range. */
const COST_OF_EXACT_RANGE = 4;
/** The cost of measuring a scan's reach and then finding its candidates, for each range. */
const COST_OF_MEASURED_RANGE = 8;

/**
 * Returns what to read next. If one index has exactly the matching numbers, its ranges are read as soon as their cost
 * is within `budget`; until then, the budget pays for candidates.
 *
 * The unit of costs and of `budget` is the test of one candidate on the index entry by which it was found.
 * @param filter already limited to the profiles that the client may see
 * @param terms how many wanted terms there are at most, as `maxTerms` returns it
 */
export function nextStep(filter: Filter, terms: number | null, budget: number): Step {
  if (filter.phoneNumber !== null) return { read: 'number' };
  const attributes = attributesIn(filter);
  const [attribute = null] = attributes;
  if (attributes.length < 2) {
    if (terms === null && attribute === null) return { read: 'all' };
    if (terms === null) return { read: 'ranges', scan: { table: 'items', attribute } };
    const rangeCount = valueCount(attribute) * terms;
    if (rangeCount * COST_OF_EXACT_RANGE <= budget) return { read: 'ranges', scan: { table: 'postings', attribute } };
  }
  return { read: 'candidates', scans: [...scansOfItems(), ...scansOfPostings()] };

  function valueCount(name: Attribute | null): number {
    return (name && filter[name]?.length) ?? 1;
  }

  function scansOfItems(): CandidateScan[] {
    // Each attribute's index also has the other attributes, so several attributes are tested without reading rows.
    const cost = attributes.length > 1 ? 1 : COST_OF_ROW;
    const names = attributes.length > 0 ? attributes : [null];
    return names.map((name) => ({ scan: { table: 'items', attribute: name }, cost }));
  }

  /** Returns the scan of the wanted terms, within the attribute that has the fewest values if the budget allows. */
  function scansOfPostings(): CandidateScan[] {
    const isWithinBudget = (rangeCount: number) => rangeCount * COST_OF_MEASURED_RANGE <= budget;
    if (terms === null || !isWithinBudget(terms)) return [];
    const [narrowest = null] = attributes.toSorted((a, b) => valueCount(a) - valueCount(b));
    const isNarrow = isWithinBudget(valueCount(narrowest) * terms);
    return [{ scan: { table: 'postings', attribute: isNarrow ? narrowest : null }, cost: COST_OF_ROW }];
  }
}

/** Returns the attributes that a filter has values for. */
export function attributesIn(filter: Filter): Attribute[] {
  return ATTRIBUTES.filter((name) => filter[name] !== null);
}

/** Returns the status of a number that has only entries with `detailedStatus`. */
function statusOf(detailedStatus: DetailedStatus): Status {
  if (detailedStatus === 'approved.optOut') return 'unregistered';
  if (detailedStatus === 'approved.optIn') return 'approved';
  return detailedStatus.startsWith('rejected.') ? 'rejected' : 'submitted for review';
}

/** Returns how many terms the filter wants at most; null if it has no condition on statuses or entries. */
export function maxTerms({ carrier, feature, detailedStatus, status, dottedStatus }: Filter): number | null {
  const isByStatus = status !== null || dottedStatus !== null;
  const isByEntry = carrier !== null || feature !== null || detailedStatus !== null;
  if (!isByStatus && !isByEntry) return null;
  // A number has the status that one of its entries gives it, or one of a higher priority because of another entry.
  const statusPairs = (detailedStatus ?? Object.values(DetailedStatus)).flatMap((entryStatus) =>
    STATUSES.slice(0, STATUSES.indexOf(statusOf(entryStatus)) + 1).filter(
      (numberStatus) => !isByStatus || status?.includes(numberStatus) || dottedStatus?.includes(entryStatus),
    ),
  );
  const features = feature ?? Object.values(Feature);
  const termsOfEntries = (carrier?.length ?? 1) * features.length * statusPairs.length;
  return termsOfEntries + (status?.includes('unregistered') ? 1 : 0);
}
