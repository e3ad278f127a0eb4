/**
 * The list query: from a filter to a page.
 *
 * ## Ranges and candidates
 *
 * A page must cost the same no matter how many numbers there are and how many of them match. So a filter becomes ranges
 * of indexes, each of which has its phone numbers in page order, and the first few of each are merged:
 *
 * - Filters on attributes alone scan the indexes of `items`, one range for each value.
 * - Filters on status or entries become terms and scan `postings`, one range for each value and term.
 * - A filter on several attributes has no index with exactly the matching numbers, and one with long lists of values
 *   may need thousands of ranges. For these filters, candidates are tested. Any of several scans contains all matching
 *   numbers. The scan that reaches furthest at the same cost has the fewest candidates that do not match; it becomes
 *   the driving scan. Its candidates are read in growing batches until the page is full, the scan ends, or the exact
 *   ranges cost less than the next batch.
 * - A filter on a phone number reads one row and tests the rest of the filter on it.
 *
 * plan.ts makes this choice; statements.ts has the SQL.
 *
 * ## Concurrent writers
 *
 * Writers may commit between the statements of one page. Each statement has one snapshot for the wanted terms and for
 * the numbers that it reads, and no two statements read the same interval of phone numbers. So a number that matches in
 * every snapshot is found once. The statements that compare scans only decide which scan finds it.
 */
import type { Query, SQL } from 'drizzle-orm';
import { type Database, rowsOf } from '../database/connection.js';
import { fillPlaceholders, pg, sql } from '../database/drizzle.js';
import type { Signal } from '../database/reads.js';
import { type Filter, limitToProfiles } from './filter.js';
import type { BatchParameters, PageParameters } from './fragment.js';
import { attributesIn, type CandidateScan, maxTerms, nextStep, type Scan, type Step } from './plan.js';
import { END, pageOfAll, pageOfCandidates, pageOfNumber, pageOfRanges, reachOf } from './statements.js';

export interface Page {
  /** The items as JSON, separated by commas: pieces of the response's body, as PostgreSQL sent them. */
  items: readonly Buffer[];
  count: number;
  /** The phone number of the last item; null if the page is empty. */
  last: string | null;
  hasNext: boolean;
}

export interface PageRequest {
  filter: Filter;
  /** The ids of the business profiles that the client may see; null for all. */
  visibleProfiles: readonly string[] | null;
  /** The phone number that the page follows; '' for the first page. */
  after: string;
  size: number;
}

/** Reads a page on a connection. Once `signal` is aborted, it sends no further statement and rejects with the signal's reason. */
export type ReadPage = (client: Client, request: PageRequest, signal?: Signal) => Promise<Page>;

/** Sends statements on one connection. */
type Client = Pick<Database['$client'], 'unsafe'>;

/** The budget of the first batch per item, in the unit of `nextStep`: it pays for testing 8 candidates on their rows. */
const COST_PER_ITEM = 32;
/** The budget of each sample by which scans are compared, in the same unit. */
const COST_PER_SAMPLE = 128;
/** How much larger each batch is than the previous one. */
const GROWTH = 4;

/**
 * Prepares the list query and returns the function that reads pages. Each statement is compiled once, and the driver
 * prepares it once on each connection. Tests set `costPerItem` and `growth` to get many small batches.
 */
export function preparePages({ costPerItem = COST_PER_ITEM, growth = GROWTH } = {}): ReadPage {
  const { readWhole, readBatch, readReach } = prepareStatements();

  return async (client, request, signal) => {
    const { after, size } = request;
    const filter = limitToProfiles(request.filter, request.visibleProfiles);
    const terms = maxTerms(filter);
    const parameters = { ...filter, isByTerm: terms !== null, after, size };
    let budget = costPerItem * (size + 1);
    const first = nextStep(filter, terms, budget);
    if (first.read !== 'candidates') return readWhole(client, first, parameters);

    const { scan, cost } = await chooseDrivingScan(client, first.scans, parameters);
    let page: Part = { items: [], count: 0, last: null, hasNext: false, until: after };
    for (let step: Step = first; !page.hasNext && page.until !== END; step = nextStep(filter, terms, budget)) {
      signal?.throwIfAborted();
      const rest = { ...parameters, after: page.until, size: size - page.count };
      const next =
        step.read === 'candidates'
          ? await readBatch(client, scan, { ...rest, count: Math.ceil(budget / cost) })
          : await readWhole(client, step, rest);
      page = joinParts(page, next);
      budget = Math.ceil(budget * growth);
    }
    return page;
  };

  async function chooseDrivingScan(
    client: Client,
    scans: readonly CandidateScan[],
    parameters: PageParameters,
  ): Promise<CandidateScan> {
    if (scans.length === 1) return scans[0] as CandidateScan;
    const samples = await Promise.all(
      scans.map(async ({ scan, cost }) => {
        return { scan, cost, last: await readReach(client, scan, { ...parameters, count: COST_PER_SAMPLE / cost }) };
      }),
    );
    return samples.reduce((furthest, sample) => (sample.last > furthest.last ? sample : furthest));
  }
}

/** A page, or a part of it that one statement read. */
interface Part extends Page {
  /** The phone number up to which all matching numbers have been read; `END` if there are no more. */
  until: string;
}

const COMMA = Buffer.from(',');

function joinParts(page: Part, next: Part): Part {
  if (page.count === 0) return next;
  if (next.count === 0) return { ...page, hasNext: next.hasNext, until: next.until };
  return { ...next, items: [...page.items, COMMA, ...next.items], count: page.count + next.count };
}

function prepareStatements() {
  const dialect = new pg.PgDialect();
  const queries = new Map<string, Query>();

  /** Reads the single row of a statement, as the bytes that PostgreSQL sent. `name` identifies the statement. */
  async function readRow<T extends Row>(
    client: Client,
    name: string,
    statement: () => SQL,
    parameters: Partial<BatchParameters>,
  ): Promise<T> {
    const query = queries.get(name) ?? dialect.sqlToQuery(statement());
    queries.set(name, query);
    const values = fillPlaceholders(query.params, parameters) as string[];
    const [row] = await rowsOf<Row>(client.unsafe(query.sql, values, { prepare: true }).raw());
    return row as T;
  }

  async function readPart(
    client: Client,
    name: string,
    statement: () => SQL,
    parameters: PageParameters,
  ): Promise<Part> {
    const select = () => sql`select items, count, last, has_next, until from (${statement()}) AS page`;
    const [items, count, last, hasNext, until] = await readRow<PageRow>(client, `page of ${name}`, select, parameters);
    return {
      items: [items],
      count: Number(count),
      last: last && `${last}`,
      hasNext: `${hasNext}` === 't',
      until: `${until}`,
    };
  }

  return {
    /** Reads the page, or the rest of it, by a single statement. */
    readWhole(client: Client, step: Exclude<Step, { read: 'candidates' }>, parameters: PageParameters): Promise<Part> {
      switch (step.read) {
        case 'all':
          return readPart(client, 'all numbers', () => pageOfAll, parameters);
        case 'number':
          return readPart(client, 'one number', () => pageOfNumber, parameters);
        case 'ranges':
          return readPart(client, `ranges of ${nameOf(step.scan)}`, () => pageOfRanges(step.scan), parameters);
      }
    },

    readBatch(client: Client, scan: Scan, parameters: BatchParameters): Promise<Part> {
      const hasSeveralAttributes = attributesIn(parameters).length > 1;
      const name = `candidates of ${nameOf(scan)}${hasSeveralAttributes ? ' with several attributes' : ''}`;
      return readPart(client, name, () => pageOfCandidates(scan, hasSeveralAttributes), parameters);
    },

    /** Returns the last of the next `count` phone numbers of `scan`, or `END` if it has no more than that. */
    async readReach(client: Client, scan: Scan, parameters: BatchParameters): Promise<string> {
      const select = () => sql`select last from (${reachOf(scan)}) AS reach`;
      const [last] = await readRow<Row>(client, `reach of ${nameOf(scan)}`, select, parameters);
      return `${last}`;
    },
  };
}

type Row = (Buffer | null)[];
type PageRow = [items: Buffer, count: Buffer, last: Buffer | null, hasNext: Buffer, until: Buffer];

const nameOf = ({ table, attribute }: Scan) => `${table} by ${attribute ?? 'phone number'}`;
