/**
 * The list query: from a filter to the rows of a page.
 *
 * A page must cost the same however many numbers match and however many there are, so the planner is left no choice.
 * Every filter is turned into walks: ranges of an index in which the phone numbers already stand in the order of the
 * pages, so that reading the first few of each and merging them is enough.
 *
 * - Filters on the number alone walk `branded_phone_numbers`, one range for each wanted owner and status.
 * - Filters on entries walk `listed_carrier_statuses`, one range for each wanted owner and combination.
 * - Lists of owners could make thousands of such ranges. So the next few hundred numbers of those owners are probed
 *   first: they fill the page, unless hardly any number matches; only then are the ranges walked.
 * - Several kinds of owners at once: the next numbers of each kind are probed, and the kind whose numbers reach furthest
 *   is the rarest. It leads; the others are compared on what it finds.
 * - A given phone number is one row; everything else is tested on it.
 *
 * A range is written as a row comparison, `(a, b, phone) > (…) AND (a, b) <= (…) ORDER BY a, b, phone`, not as
 * equalities: with equalities the order by phone number alone would do, other indexes could give it too, and the planner
 * might walk millions of rows of one of them in search of a rare match. Only the index that is meant has this order.
 * What is to be computed once, or first, is a materialized common table expression for the same reason.
 */
import { type Column, type SQL, sql } from 'drizzle-orm';
import type { BrandedPhoneNumber } from '../generated/types/models/index.js';
import type { Database } from './database.js';
import type { Filter } from './filter.js';
import {
  businessProfiles,
  combinations,
  listedCarrierStatuses as listed,
  brandedPhoneNumbers as numbers,
} from './schema.js';

/** A row of a page: the number that orders it, and the item as JSON text, as the answer carries it. */
export interface PageRow {
  phoneNumber: string;
  item: string;
}

export interface PageRequest {
  filter: Filter;
  /** The business profiles that may be seen; null for all. */
  visibleProfiles: readonly string[] | null;
  /** The phone number after which the page begins; '' for the first page. */
  after: string;
  /** The most rows to read. */
  limit: number;
}

const after = sql`${sql.placeholder('after')}::text`;
const limit = sql`${sql.placeholder('limit')}::int`;
const phoneNumber = sql`${sql.placeholder('phoneNumber')}::text`;

/** What a number belongs to: the columns that a filter can name it by, and the values that this request names. */
interface Owner {
  name: 'businessProfiles' | 'reportingGroups' | 'internalNames';
  ofNumber: Column;
  ofEntry: Column;
  values: SQL;
}

const OWNERS: readonly Owner[] = [
  {
    name: 'businessProfiles',
    ofNumber: numbers.businessProfileId,
    ofEntry: listed.businessProfileId,
    values: sql`${sql.placeholder('businessProfiles')}::uuid[]`,
  },
  {
    name: 'internalNames',
    ofNumber: numbers.internalName,
    ofEntry: listed.internalName,
    values: sql`${sql.placeholder('internalNames')}::text[]`,
  },
  {
    name: 'reportingGroups',
    ofNumber: numbers.reportingGroup,
    ofEntry: listed.reportingGroup,
    values: sql`${sql.placeholder('reportingGroups')}::text[]`,
  },
];

/** How a filter speaks of entries: not at all; a number needs a matching entry; or its own status may do instead. */
type EntryTest = 'none' | 'needed' | 'or status';

/** What decides the statement, beside its values. */
interface Shape {
  owners: readonly Owner[];
  entryTest: EntryTest;
  byPhoneNumber: boolean;
  byStatus: boolean;
  /** Whether there may be so many ranges that the next numbers are probed before they are walked. */
  probes: boolean;
}

/** Prepares the list query on `database`; each shape of it is compiled once and prepared once on each connection. */
export function preparePages(database: Pick<Database, 'select'>): (request: PageRequest) => Promise<PageRow[]> {
  const statements = new Map<string, ReturnType<typeof prepare>>();

  function prepare(name: string, shape: Shape) {
    return database
      .select({ phoneNumber: sql<string>`found.phone_number`, item: sql<string>`to_json(item)::text` })
      .from(sql`(
        SELECT DISTINCT ON (phone_number) phone_number FROM (${matching(shape)}) AS matching
        ORDER BY phone_number LIMIT ${limit}
      ) AS found`)
      .crossJoin(sql`LATERAL (${item}) AS item`)
      .orderBy(sql`found.phone_number`)
      .prepare(name);
  }

  return async ({ filter, visibleProfiles, ...page }) => {
    const businessProfiles = profilesOf(filter, visibleProfiles);
    if (businessProfiles?.length === 0) return [];
    const shape = shapeOf(filter, businessProfiles);
    const name = nameOf(shape);
    const statement = statements.get(name) ?? prepare(name, shape);
    statements.set(name, statement);
    const entryStatuses = filtersEntries(filter) ? filter.statuses : null;
    return statement.execute({ ...filter, ...page, businessProfiles, entryStatuses });
  };
}

function profilesOf({ businessProfileId }: Filter, visible: readonly string[] | null): readonly string[] | null {
  if (businessProfileId === null) return visible;
  return visible === null || visible.includes(businessProfileId) ? [businessProfileId] : [];
}

function shapeOf(filter: Filter, businessProfiles: readonly string[] | null): Shape {
  const values = { ...filter, businessProfiles };
  const owners = OWNERS.filter((owner) => values[owner.name] !== null);
  const entryTest = entryTestOf(filter);
  const lists = [...owners.map((owner) => values[owner.name]), filter.carriers];
  const hasManyRanges = entryTest !== 'none' && lists.some((list) => list !== null && list.length > MANY);
  return {
    owners,
    entryTest,
    byPhoneNumber: filter.phoneNumber !== null,
    byStatus: filter.statuses !== null,
    probes: owners.length > 1 || hasManyRanges,
  };
}

/** More values than this of one owner or of the carriers make a probe cheaper, as a rule, than walking all ranges. */
const MANY = 2;

function filtersEntries({ carriers, features, detailedStatuses }: Filter): boolean {
  return carriers !== null || features !== null || detailedStatuses !== null;
}

function entryTestOf(filter: Filter): EntryTest {
  if (filtersEntries(filter)) return 'needed';
  if (filter.dottedStatuses === null) return 'none';
  return filter.statuses === null ? 'needed' : 'or status';
}

function nameOf({ owners, entryTest, byPhoneNumber, byStatus, probes }: Shape): string {
  const by = [byPhoneNumber && 'phone number', ...owners.map(({ name }) => name), byStatus && 'status'].filter(Boolean);
  return `list by ${by.join(', ') || 'nothing'}; entry ${entryTest}${probes ? '; probe' : ''}`;
}

/** The phone numbers that match, at least the first `limit` after `after`, in any order and perhaps repeated. */
function matching(shape: Shape): SQL {
  const { owners, entryTest, byPhoneNumber, probes } = shape;
  const wanted = owners.map(
    (owner) => sql`${wantedOf(owner)} AS MATERIALIZED (SELECT unnest(${owner.values}) AS value)`,
  );
  if (entryTest !== 'none') wanted.push(wantedCombinations);
  const steps = byPhoneNumber ? theNumber(shape) : probes ? probeThenWalk(shape) : walk(shape, owners[0]);
  // The steps may begin with common table expressions of their own, so these stand in an outer query.
  return wanted.length > 0
    ? sql`WITH ${sql.join(wanted, sql`, `)} SELECT phone_number FROM (${steps}) AS steps`
    : steps;
}

const wantedOf = ({ name }: Owner) => sql.identifier(`wanted_${name}`);

/** The combinations that an entry the filter asks for can have. */
const wantedCombinations = (() => {
  const carriers = sql`${sql.placeholder('carriers')}::text[]`;
  const features = sql`${sql.placeholder('features')}::text[]::feature[]`;
  const detailedStatuses = sql`${sql.placeholder('detailedStatuses')}::text[]::detailed_status[]`;
  const dottedStatuses = sql`${sql.placeholder('dottedStatuses')}::text[]::detailed_status[]`;
  const entryStatuses = sql`${sql.placeholder('entryStatuses')}::text[]::status[]`;
  return sql`wanted_combinations AS MATERIALIZED (
    SELECT ${combinations.id} FROM ${combinations}
    WHERE (${carriers} IS NULL OR ${combinations.carrier} = ANY (${carriers}))
      AND (${features} IS NULL OR ${combinations.feature} = ANY (${features}))
      AND (${detailedStatuses} IS NULL OR ${combinations.detailedStatus} = ANY (${detailedStatuses}))
      AND (
        (${entryStatuses} IS NULL AND ${dottedStatuses} IS NULL)
        OR ${combinations.status} = ANY (${entryStatuses})
        OR ${combinations.detailedStatus} = ANY (${dottedStatuses})
      )
  )`;
})();

/** Walks the ranges of `owner`, or of all numbers, testing the other owners on the way. */
function walk(shape: Shape, owner: Owner | undefined): SQL {
  const { entryTest } = shape;
  if (entryTest === 'needed') return walkEntries(shape, owner);
  if (entryTest === 'or status') return sql`${walkNumbers(shape, owner)} UNION ALL ${walkEntries(shape, owner)}`;
  return walkNumbers(shape, owner);
}

/** One range for each wanted owner and status. */
function walkNumbers({ owners, byStatus }: Shape, owner: Owner | undefined): SQL {
  const ranges: Range[] = owner ? [{ column: owner.ofNumber, wanted: sql`owner.value` }] : [];
  const from = owner ? [sql`${wantedOf(owner)} AS owner`] : [];
  if (byStatus) {
    ranges.push({ column: numbers.status, wanted: sql`wanted_status` });
    from.push(sql`unnest(${statuses}) AS wanted_status`);
  }
  return walkRanges(from, ranges, numbers, {
    most: limit,
    conditions: belongsToOthers('ofNumber', owners, owner),
  });
}

/** One range for each wanted owner and combination. */
function walkEntries({ owners }: Shape, owner: Owner | undefined): SQL {
  const ranges: Range[] = [{ column: listed.combinationId, wanted: sql`combination.id` }];
  const from = [sql`wanted_combinations AS combination`];
  if (owner) {
    ranges.unshift({ column: owner.ofEntry, wanted: sql`owner.value` });
    from.unshift(sql`${wantedOf(owner)} AS owner`);
  }
  return walkRanges(from, ranges, listed, {
    most: limit,
    conditions: belongsToOthers('ofEntry', owners, owner),
  });
}

/** A column that an index begins with, and the value of it that is wanted. */
interface Range {
  column: Column;
  wanted: SQL;
}

interface Reading {
  /** The most rows of each range. */
  most: SQL;
  columns?: SQL;
  conditions?: SQL[];
  /** The last number to read, where not all of the range. */
  last?: SQL;
}

/** The first numbers of each range after the cursor. */
function walkRanges(from: SQL[], ranges: Range[], table: typeof numbers | typeof listed, reading: Reading): SQL {
  const { most, columns = sql`${table.phoneNumber}`, conditions = [], last } = reading;
  const list = (parts: (Column | SQL)[]) =>
    sql.join(
      parts.map((part) => sql`${part}`),
      sql`, `,
    );
  const of = ranges.map(({ column }) => column);
  const wanted = ranges.map((range) => range.wanted);
  const order = list([...of, table.phoneNumber]);
  const isInRange = [sql`(${order}) > (${list([...wanted, after])})`];
  if (last) isInRange.push(sql`(${order}) <= (${list([...wanted, last])})`);
  else if (ranges.length > 0) isInRange.push(sql`(${list(of)}) <= (${list(wanted)})`);
  const walked = sql`LATERAL (
    SELECT ${columns} FROM ${table}
    WHERE ${sql.join([...isInRange, ...conditions], sql` AND `)}
    ORDER BY ${order} LIMIT ${most}
  ) AS walked`;
  return sql`SELECT walked.* FROM ${sql.join([...from, walked], sql` CROSS JOIN `)}`;
}

/**
 * Whether a row belongs to a wanted owner of each kind but the one that is walked. COALESCE keeps it a test of rows that
 * were found: the bare column would be a condition for another index, whose whole range would be read and sorted.
 */
function belongsToOthers(where: 'ofNumber' | 'ofEntry', owners: readonly Owner[], walked?: Owner): SQL[] {
  return owners
    .filter((owner) => owner !== walked)
    .map((owner) => [owner[where], wantedOf(owner)])
    .map(([column, wanted]) => sql`coalesce(${column}, ${column}) = ANY (ARRAY(SELECT value FROM ${wanted}))`);
}

const statuses = sql`${sql.placeholder('statuses')}::text[]::status[]`;

/** Whether a number has what the filter asks of its status and its entries. */
function matches({ entryTest, byStatus }: Shape, number: typeof numbers): SQL[] {
  const statusMatches = sql`${number.status} = ANY (${statuses})`;
  // OFFSET keeps it a test of one number: as a join the planner might read all entries first.
  const hasEntry = sql`EXISTS (
    SELECT FROM (
      SELECT ${listed.combinationId} AS id FROM ${listed} WHERE ${listed.phoneNumber} = ${number.phoneNumber} OFFSET 0
    ) AS entry
    WHERE entry.id = ANY (ARRAY(SELECT id FROM wanted_combinations))
    OFFSET 0
  )`;
  if (entryTest === 'needed') return [hasEntry];
  if (entryTest === 'or status') return [sql`(${statusMatches} OR ${hasEntry})`];
  return byStatus ? [statusMatches] : [];
}

function theNumber(shape: Shape): SQL {
  const conditions = [...belongsToOthers('ofNumber', shape.owners), ...matches(shape, numbers)];
  return sql`
    SELECT ${numbers.phoneNumber} FROM ${numbers}
    WHERE ${sql.join(
      [sql`${numbers.phoneNumber} = ${phoneNumber}`, sql`${numbers.phoneNumber} > ${after}`, ...conditions],
      sql` AND `,
    )}`;
}

/** So many numbers are probed for each row of the page: it is filled if one in so many matches. */
const probed = sql`(8 * ${limit})`;

/** Tests the next numbers of the rarest kind of owner, and walks its ranges only if they don't fill the page. */
function probeThenWalk(shape: Shape): SQL {
  const kinds = (shape.owners.length > 0 ? shape.owners : [undefined]).map((owner) => {
    const name = owner?.name ?? 'all';
    return { owner, next: sql.identifier(`next_${name}`), literal: sql.raw(`'${name}'`) };
  });
  const nexts = kinds.map(({ owner, next }) => sql`${next} AS MATERIALIZED (${nextNumbers(owner)})`);
  const reaches = kinds.map(
    ({ next, literal }) => sql`
      SELECT ${literal} AS kind, count(*) < ${probed} AS is_all, max(phone_number) AS reach FROM ${next}`,
  );
  const tests = kinds.map(({ owner, next, literal }) => {
    const isLead = sql`(SELECT kind FROM lead) = ${literal}`;
    const conditions = [isLead, ...belongsToOthers('ofNumber', shape.owners, owner), ...matches(shape, numbers)];
    return sql`SELECT phone_number FROM ${next} AS ${numbers} WHERE ${sql.join(conditions, sql` AND `)}`;
  });
  const walks = kinds.map(
    ({ owner, literal }) => sql`
      SELECT phone_number FROM (${walk(shape, owner)}) AS walk WHERE (SELECT kind FROM rest) = ${literal}`,
  );
  return sql`
    WITH ${sql.join(nexts, sql`, `)},
    lead AS MATERIALIZED (
      SELECT * FROM (${sql.join(reaches, sql` UNION ALL `)}) AS reaches ORDER BY is_all DESC, reach DESC LIMIT 1
    ),
    found AS MATERIALIZED (SELECT phone_number FROM (${sql.join(tests, sql` UNION ALL `)}) AS tested LIMIT ${limit}),
    rest AS MATERIALIZED (SELECT kind FROM lead WHERE NOT is_all AND (SELECT count(*) FROM found) < ${limit})
    SELECT phone_number FROM found
    UNION ALL
    ${sql.join(walks, sql` UNION ALL `)}`;
}

/**
 * The next numbers of any wanted owner of a kind. Reading that many of each owner would be a waste, so a few of each are
 * read first: among them is a number up to which there are surely enough.
 */
function nextNumbers(owner: Owner | undefined): SQL {
  const columns = sql.join(
    [numbers.phoneNumber, numbers.status, ...OWNERS.map(({ ofNumber }) => ofNumber)].map((column) => sql`${column}`),
    sql`, `,
  );
  if (!owner) return walkRanges([], [], numbers, { most: probed, columns });
  const from = [sql`${wantedOf(owner)} AS owner`];
  const ranges = [{ column: owner.ofNumber, wanted: sql`owner.value` }];
  const few = sql`(SELECT 4 * ${probed} / count(*) FROM ${wantedOf(owner)})`;
  const last = sql`coalesce((
    SELECT phone_number FROM (${walkRanges(from, ranges, numbers, { most: few })}) AS few
    ORDER BY phone_number OFFSET ${probed} - 1 LIMIT 1
  ), '~')`;
  return sql`
    SELECT * FROM (${walkRanges(from, ranges, numbers, { most: probed, columns, last })}) AS next
    ORDER BY phone_number LIMIT ${probed}`;
}

/** Every member of an item and where it comes from, in the contract's order; the database makes the JSON of it. */
const members = {
  id: numbers.id,
  phoneNumber: numbers.phoneNumber,
  businessProfile: sql`(
    SELECT row_to_json(profile) FROM (
      SELECT ${businessProfiles.id}, ${businessProfiles.businessName} AS "businessName", ${businessProfiles.status}
      FROM ${businessProfiles} WHERE ${businessProfiles.id} = ${numbers.businessProfileId}
    ) AS profile
  )`,
  internalName: numbers.internalName,
  brandingNameShort: numbers.brandingNameShort,
  brandingNameLong: numbers.brandingNameLong,
  reportingGroup: numbers.reportingGroup,
  status: numbers.status,
  carrierStatuses: numbers.carrierStatuses,
  createdAt: sql`rfc3339(${numbers.createdAt})`,
  updatedAt: sql`rfc3339(${numbers.updatedAt})`,
} satisfies Record<keyof BrandedPhoneNumber, Column | SQL>;

const item = sql`
  SELECT ${sql.join(
    Object.entries(members).map(([member, value]) => sql`${value} AS ${sql.identifier(member)}`),
    sql`, `,
  )}
  FROM ${numbers} WHERE ${numbers.phoneNumber} = found.phone_number
  OFFSET 0`;
