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
import { fillPlaceholders, type SQL, sql } from 'drizzle-orm';
import { PgDialect } from 'drizzle-orm/pg-core';
import type { Database } from '../database/connect.js';
import type { Signal } from '../database/reads.js';
import type { Filter } from '../request/filter.js';
import { type CandidateScan, countsOf, nextStep, type Scan, type Step } from './plan.js';
import { END, pageOfAll, pageOfCandidates, pageOfNumber, pageOfRanges, reachOf } from './statements.js';

/** A page of the list. */
export interface Page {
  /** The items as JSON, separated by commas, as the answer carries them; in pieces, which PostgreSQL's socket gave. */
  items: readonly Buffer[];
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
 * Prepares the list query on a client; each statement is compiled once and prepared once on each connection.
 * `costPerRow` and `growth` are for tests that want many small batches.
 */
export function preparePages(client: Client, { costPerRow = COST_PER_ROW, growth = GROWTH } = {}): ReadPage {
  const { readPart, readReach } = prepareStatements(client);

  return async ({ filter, visibleProfiles, after, size }, signal) => {
    const businessProfiles = profilesOf(filter, visibleProfiles);
    if (businessProfiles?.length === 0) return NO_PAGE;
    signal?.throwIfAborted();
    const counts = countsOf(filter, businessProfiles);
    const values = { ...filter, businessProfiles, isByTerm: counts.terms !== null, after, size };
    let batch = costPerRow * (size + 1);
    const first = nextStep(counts, batch);
    if (first.read !== 'candidates') return readPart(first, values);

    const { scan, cost, terms = counts.terms } = await choose(first.scans, values);
    signal?.throwIfAborted();
    const candidates = { read: 'candidates', scan, hasSeveralAttributes: counts.attributes.size > 1 } as const;
    let page = await readPart(candidates, { ...values, count: Math.ceil(batch / cost) });
    while (!page.hasNext && page.until !== END) {
      signal?.throwIfAborted();
      batch = Math.ceil(batch * growth);
      const next = nextStep({ ...counts, terms }, batch);
      const rest = { ...values, after: page.until, size: size - page.count, count: Math.ceil(batch / cost) };
      page = joined(page, await readPart(next.read === 'candidates' ? candidates : next, rest));
    }
    return page;
  };

  /** Of several scans, the one that reaches furthest at the same cost; and how many wanted terms exist, if one has shown it. */
  async function choose(
    scans: readonly CandidateScan[],
    values: Values,
  ): Promise<CandidateScan & { terms?: number | undefined }> {
    const [only] = scans as [CandidateScan];
    if (scans.length === 1) return only;
    const reaches = await Promise.all(
      scans.map(async (of) => ({ ...of, ...(await readReach(of.scan, { ...values, count: SAMPLE / of.cost })) })),
    );
    const ofTerms = reaches.find(({ scan }) => scan.of === 'postings' && scan.attribute === null);
    const furthest = reaches.reduce((best, each) => (each.last > best.last ? each : best));
    return { ...furthest, terms: ofTerms?.ranges };
  }
}

/** A page, and up to which phone number it has all that match. */
interface Part extends Page {
  until: string;
}

const COMMA = Buffer.from(',');
const NO_PAGE: Part = { items: [], count: 0, last: null, hasNext: false, until: END };

function joined(page: Part, next: Part): Part {
  if (page.count === 0) return next;
  if (next.count === 0) return { ...page, hasNext: next.hasNext, until: next.until };
  return { ...next, items: [...page.items, COMMA, ...next.items], count: page.count + next.count };
}

function profilesOf({ businessProfileId }: Filter, visible: readonly string[] | null): readonly string[] | null {
  if (businessProfileId === null) return visible;
  return visible === null || visible.includes(businessProfileId) ? [businessProfileId] : [];
}

/** How far a scan reaches: up to which phone number its sample goes, `END` where it has no more, over how many ranges. */
interface Reach {
  last: string;
  ranges: number;
}

type Values = Record<string, unknown>;
type PageRow = [items: Buffer, count: Buffer, last: Buffer | null, hasNext: Buffer, until: Buffer];
type Statement =
  | Exclude<Step, { read: 'candidates' }>
  | { read: 'candidates'; scan: Scan; hasSeveralAttributes: boolean };

/** What sends the statements: a pool, or a transaction. */
type Client = Pick<Database['$client'], 'unsafe'>;

function prepareStatements(client: Client) {
  const dialect = new PgDialect();
  const statements = new Map<string, ReturnType<SQL['toQuery']>>();

  /** The one row of a statement, as the bytes that PostgreSQL sent: those of the items are also what a client gets. */
  async function read(name: string, text: () => SQL, values: Values) {
    const statement = statements.get(name) ?? dialect.sqlToQuery(text());
    statements.set(name, statement);
    const parameters = fillPlaceholders(statement.params, values) as string[];
    const [row] = await client.unsafe(statement.sql, parameters, { prepare: true }).raw();
    return row as Buffer[];
  }

  async function readPart(part: Statement, values: Values): Promise<Part> {
    const text = () => sql`select items, count, last, has_next, until from (${textOf(part)}) AS page`;
    const [items, count, last, hasNext, until] = (await read(nameOf(part), text, values)) as PageRow;
    return {
      items: [items],
      count: Number(count),
      last: last && `${last}`,
      hasNext: `${hasNext}` === 't',
      until: `${until}`,
    };
  }

  async function readReach(scan: Scan, values: Values): Promise<Reach> {
    const text = () => sql`select last, ranges from (${reachOf(scan)}) AS reach`;
    const [last, ranges] = await read(`reach of ${nameOfScan(scan)}`, text, values);
    return { last: `${last}`, ranges: Number(ranges) };
  }

  return { readPart, readReach };
}

function textOf(part: Statement): SQL {
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

function nameOf(part: Statement): string {
  if (part.read === 'all' || part.read === 'number') return `page of ${part.read}`;
  const several = part.read === 'candidates' && part.hasSeveralAttributes ? ' with several attributes' : '';
  return `page of ${part.read} of ${nameOfScan(part.scan)}${several}`;
}

const nameOfScan = ({ of, attribute }: Scan) => `${of} by ${attribute ?? 'phone number'}`;
