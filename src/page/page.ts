/**
 * The list query: from a filter to a page.
 *
 * A page must cost the same no matter how many numbers match and how many there are. So a filter is turned into ranges of
 * indexes in which the phone numbers are in the order of the pages, and the first few of each are merged:
 *
 * - Filters on attributes alone scan the indexes of `items`, one range for each value.
 * - Filters on status or entries become terms and scan `postings`, one range for each value and term.
 * - Where several attributes are combined, no index has exactly what is asked for, and long lists may mean thousands
 *   of ranges. Then candidates are tested. Several scans contain what is asked for, among other numbers; the one whose next
 *   numbers reach furthest has the fewest candidates, and is the driving set of the page. Batches of candidates grow until
 *   the page is full, the scan is at its end, or reading the exact ranges costs less than the next batch.
 * - A given phone number is one row; everything else is tested on it.
 *
 * plan.ts chooses between them; statements.ts is their SQL.
 *
 * Writers may come between the statements of one page. Each statement reads its own interval of phone numbers, in
 * one snapshot, and finds the wanted terms in that snapshot: a number that matches throughout is in the driving set and
 * passes its tests. Earlier snapshots decide only which set drives.
 */
import { type SQL, sql } from 'drizzle-orm';
import type { Database } from '../database/connect.js';
import type { Signal } from '../database/reads.js';
import type { Filter } from '../request/filter.js';
import { askedOf, type CandidateScan, nextStep, type Scan, type Step } from './plan.js';
import { END, pageOfAll, pageOfCandidates, pageOfNumber, pageOfRanges, reachOf } from './statements.js';

/** A page of the list. */
export interface Page {
  /** The items as JSON text, separated by commas, as the answer carries them. */
  items: string;
  /** How many there are. */
  count: number;
  /** The phone number of the last one; null if there is none. */
  last: string | null;
  hasNext: boolean;
}

export interface PageRequest {
  filter: Filter;
  /** The business profiles that may be seen; null for all. */
  visibleProfiles: readonly string[] | null;
  /** The phone number after which the page begins; '' for the first page. */
  after: string;
  /** The most items. */
  size: number;
}

/** Reads a page. Once `signal` is aborted, it sends no further statement and rejects with the signal's reason. */
export type ReadPage = (request: PageRequest, signal?: Signal) => Promise<Page>;

/** What the first batch may cost for each row of a page, in the units of plan.ts: enough to test 8 candidates on rows. */
const COST_PER_ROW = 32;
/** What each scan may cost, in the same units, when their reaches are compared. */
const SAMPLE = 128;
/** How much larger each batch is than the one before. */
const GROWTH = 4;

/**
 * Prepares the list query on `database`; each statement is compiled once and prepared once on each connection.
 * `costPerRow` and `growth` are for tests that want many small batches.
 */
export function preparePages(
  database: Pick<Database, 'select'>,
  { costPerRow = COST_PER_ROW, growth = GROWTH } = {},
): ReadPage {
  const { readPart, readReaches } = prepareStatements(database);

  return async ({ filter, visibleProfiles, after: start, size }, signal) => {
    const businessProfiles = profilesOf(filter, visibleProfiles);
    if (businessProfiles?.length === 0) return NO_PAGE;
    let asked = askedOf(filter, businessProfiles);
    const values = { ...filter, businessProfiles, isByTerm: asked.terms !== null };
    let page = NO_PAGE;
    let after = start;
    let driving: CandidateScan | undefined;
    for (let batch = costPerRow * (size + 1); ; batch = Math.ceil(batch * growth)) {
      signal?.throwIfAborted();
      const step = nextStep(asked, batch);
      const rest = { ...values, after, size: size - page.count };
      if (step.read !== 'candidates') return joined(page, await readPart(step, rest));
      if (!driving) {
        const reaches = step.scans.length === 1 ? [] : await readReaches(step.scans, rest);
        [driving] = [...reaches, ...step.scans] as [CandidateScan];
        asked = { ...asked, terms: termsOf(reaches) ?? asked.terms };
        signal?.throwIfAborted();
      }
      const { scan, cost } = driving;
      const hasSeveralAttributes = asked.attributes.size > 1;
      const part = await readPart({ ...step, scan, hasSeveralAttributes }, { ...rest, count: Math.ceil(batch / cost) });
      page = joined(page, part);
      if (page.hasNext || page.until === END) return page;
      after = page.until;
    }
  };
}

/** A page, and up to which phone number it has all that match. */
interface Part extends Page {
  until: string;
}

const NO_PAGE: Part = { items: '', count: 0, last: null, hasNext: false, until: END };

function joined(page: Part, next: Part): Part {
  if (page.count === 0) return next;
  if (next.count === 0) return { ...page, hasNext: next.hasNext, until: next.until };
  return { ...next, items: `${page.items},${next.items}`, count: page.count + next.count };
}

function profilesOf({ businessProfileId }: Filter, visible: readonly string[] | null): readonly string[] | null {
  if (businessProfileId === null) return visible;
  return visible === null || visible.includes(businessProfileId) ? [businessProfileId] : [];
}

interface Reach extends CandidateScan {
  /** The phone number up to which the sample reaches; `END` where the scan has no more. */
  last: string;
  ranges: number;
}

/** Those that reach further first. */
function byReach(one: Reach, other: Reach): number {
  if (one.last === other.last) return 0;
  return one.last > other.last ? -1 : 1;
}

/** How many of the wanted terms exist, if a scan has shown it. */
function termsOf(reaches: readonly Reach[]): number | undefined {
  return reaches.find(({ scan }) => scan.of === 'postings' && scan.attribute === null)?.ranges;
}

type Read = Exclude<Step, { read: 'candidates' }> | { read: 'candidates'; scan: Scan; hasSeveralAttributes: boolean };

function prepareStatements(database: Pick<Database, 'select'>) {
  const pages = new Map<string, ReturnType<typeof preparePage>>();
  const reaches = new Map<string, ReturnType<typeof prepareReach>>();

  function preparePage(name: string, text: SQL) {
    return database
      .select({
        items: sql<string>`items`,
        count: sql<number>`count`,
        last: sql<string | null>`last`,
        hasNext: sql<boolean>`has_next`,
        until: sql<string>`until`,
      })
      .from(sql`(${text}) AS page`)
      .prepare(name);
  }

  function prepareReach(name: string, text: SQL) {
    return database
      .select({ last: sql<string>`last`, ranges: sql<number>`ranges` })
      .from(sql`(${text}) AS reach`)
      .prepare(name);
  }

  async function readPart(part: Read, values: Record<string, unknown>): Promise<Part> {
    const name = nameOf(part);
    const statement = pages.get(name) ?? preparePage(name, textOf(part));
    pages.set(name, statement);
    const [page = NO_PAGE] = await statement.execute(values);
    return page;
  }

  async function readReach(scan: Scan, values: Record<string, unknown>): Promise<Omit<Reach, keyof CandidateScan>> {
    const name = `reach of ${nameOfScan(scan)}`;
    const statement = reaches.get(name) ?? prepareReach(name, reachOf(scan));
    reaches.set(name, statement);
    const [reach = { last: END, ranges: 0 }] = await statement.execute(values);
    return reach;
  }

  /** How far some scans reach at the same cost, the furthest first. */
  async function readReaches(scans: readonly CandidateScan[], values: Record<string, unknown>): Promise<Reach[]> {
    const reaches = await Promise.all(
      scans.map(async (of) => ({ ...of, ...(await readReach(of.scan, { ...values, count: SAMPLE / of.cost })) })),
    );
    return reaches.sort(byReach);
  }

  return { readPart, readReaches };
}

function textOf(part: Read): SQL {
  switch (part.read) {
    case 'all':
      return pageOfAll;
    case 'number':
      return pageOfNumber;
    case 'ranges':
      return pageOfRanges(part.scan);
    case 'candidates':
      return pageOfCandidates(part.scan, part.hasSeveralAttributes);
  }
}

function nameOf(part: Read): string {
  if (part.read === 'all' || part.read === 'number') return `page of ${part.read}`;
  const several = part.read === 'candidates' && part.hasSeveralAttributes ? ' with several attributes' : '';
  return `page of ${part.read} of ${nameOfScan(part.scan)}${several}`;
}

const nameOfScan = ({ of, attribute }: Scan) => `${of} by ${attribute ?? 'phone number'}`;
