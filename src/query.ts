/**
 * The list query: from a filter to a page.
 *
 * A page must cost the same however many numbers match and however many there are, so the planner is left no choice.
 * Every filter is turned into walks: ranges of an index in which the phone numbers already stand in the order of the
 * pages, so that reading the first few of each and merging them is enough.
 *
 * - Filters on owners alone walk `branded_phone_numbers`, one range for each wanted owner.
 * - Filters on status or entries come down to facets and walk `listings`, one range for each wanted owner and facet.
 * - Lists could make thousands of such ranges, and several kinds of owners have no range in common. So the next few
 *   hundred numbers of each kind of owner, and those of the wanted facets, are probed first. The kind whose numbers reach
 *   furthest is the rarest: it leads, and the rest of the filter is tested on what it found. That fills the page, unless
 *   hardly any number matches; only then are the ranges walked.
 * - A given phone number is one row; everything else is tested on it.
 *
 * A range is written as a row comparison, `(a, b, phone) > (…) AND (a, b) <= (…) ORDER BY a, b, phone`, not as
 * equalities: with equalities the order by phone number alone would do, other indexes could give it too, and the planner
 * might walk millions of rows of one of them in search of a rare match. Only the index that is meant has this order.
 * What is to be computed once, or first, is a materialized common table expression for the same reason.
 */
import { type Column, type SQL, sql } from 'drizzle-orm';
import type { Database } from './database.js';
import type { Filter } from './filter.js';
import { businessProfiles, facets, listings, brandedPhoneNumbers as numbers } from './schema.js';

/** A page of the list. */
export interface Page {
  /** The items as JSON text, separated by commas, as the answer carries them. */
  items: string;
  /** How many there are. */
  count: number;
  /** The phone number of the last one; null where there is none. */
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

const after = sql`${sql.placeholder('after')}::text`;
const size = sql`${sql.placeholder('size')}::int`;
/** One number more than the page shows tells whether there is a next page. */
const limit = sql`(${size} + 1)`;
const phoneNumber = sql`${sql.placeholder('phoneNumber')}::text`;

/** What a number belongs to: the columns that a filter can name it by, and the values that this request names. */
interface Owner {
  name: 'businessProfiles' | 'reportingGroups' | 'internalNames';
  ofNumber: Column;
  ofListing: Column;
  values: SQL;
}

const OWNERS: readonly Owner[] = [
  {
    name: 'businessProfiles',
    ofNumber: numbers.businessProfileId,
    ofListing: listings.businessProfileId,
    values: sql`${sql.placeholder('businessProfiles')}::uuid[]`,
  },
  {
    name: 'internalNames',
    ofNumber: numbers.internalName,
    ofListing: listings.internalName,
    values: sql`${sql.placeholder('internalNames')}::text[]`,
  },
  {
    name: 'reportingGroups',
    ofNumber: numbers.reportingGroup,
    ofListing: listings.reportingGroup,
    values: sql`${sql.placeholder('reportingGroups')}::text[]`,
  },
];

/** What decides the statement, beside its values. */
interface Shape {
  owners: readonly Owner[];
  byPhoneNumber: boolean;
  /** Whether the filter asks for a status or for entries. */
  byFacet: boolean;
  /** What is probed before ranges are walked; nothing where there are few ranges. */
  probes: readonly Probe[];
  depth: ProbeDepth;
}

/** Whose next numbers are read: an owner's, those of the wanted facets, or all. */
type Probe = Owner | 'facets' | 'all';

/**
 * How many numbers are probed for each row of the page, which is filled if one in so many matches. More where the ranges
 * to be walked otherwise are many, or long: those of facets times owners, and those that several kinds of owners share.
 */
interface ProbeDepth {
  owner: number;
  facets: number;
  severalOwners: number;
}

const PROBE_DEPTH: ProbeDepth = { owner: 8, facets: 12, severalOwners: 32 };

/** Prepares the list query on `database`; each shape of it is compiled once and prepared once on each connection. */
export function preparePages(
  database: Pick<Database, 'select'>,
  depth = PROBE_DEPTH,
): (request: PageRequest) => Promise<Page> {
  const statements = new Map<string, ReturnType<typeof prepare>>();

  function prepare(name: string, shape: Shape) {
    return database
      .select({
        items: sql<string>`coalesce(string_agg(item, ',' ORDER BY phone_number), '')`,
        count: sql<number>`count(*)::int`,
        last: sql<string | null>`max(phone_number)`,
        hasNext: sql<boolean>`${isOfAll(shape) ? isBeforeOthers : isOfMore}`,
      })
      .from(sql`(${isOfAll(shape) ? firstOfAll : firstOfFound(shape)}) AS shown`)
      .prepare(name);
  }

  return async ({ filter, visibleProfiles, ...page }) => {
    const businessProfiles = profilesOf(filter, visibleProfiles);
    if (businessProfiles?.length === 0) return NO_PAGE;
    const shape = shapeOf(filter, businessProfiles, depth);
    const name = nameOf(shape);
    const statement = statements.get(name) ?? prepare(name, shape);
    statements.set(name, statement);
    const [found = NO_PAGE] = await statement.execute({ ...filter, ...page, businessProfiles, ...statusesOf(filter) });
    return found;
  };
}

const NO_PAGE: Page = { items: '', count: 0, last: null, hasNext: false };

function profilesOf({ businessProfileId }: Filter, visible: readonly string[] | null): readonly string[] | null {
  if (businessProfileId === null) return visible;
  return visible === null || visible.includes(businessProfileId) ? [businessProfileId] : [];
}

/** Beside a filter on entries, a status that speaks of the number is asked of the numbers that have such an entry. */
function statusesOf(filter: Filter) {
  return filtersEntries(filter)
    ? { ownStatuses: null, besideStatuses: filter.statuses }
    : { ownStatuses: filter.statuses, besideStatuses: null };
}

function filtersEntries({ carriers, features, detailedStatuses }: Filter): boolean {
  return carriers !== null || features !== null || detailedStatuses !== null;
}

function shapeOf(filter: Filter, businessProfiles: readonly string[] | null, depth: ProbeDepth): Shape {
  const values = { ...filter, businessProfiles };
  const owners = OWNERS.filter((owner) => values[owner.name] !== null);
  const byStatus = filter.statuses !== null || filter.dottedStatuses !== null;
  const byFacet = byStatus || filtersEntries(filter);
  // Of a feature alone there are as many facets as of all, and as good as every number has one of them.
  const isCommon = byFacet && !byStatus && filter.carriers === null && filter.detailedStatuses === null;
  const isLong = (list: readonly unknown[] | null) => list !== null && list.length > MANY;
  const hasManyOwners = owners.length > 1 || owners.some((owner) => isLong(values[owner.name]));
  const probes: Probe[] = [];
  if (owners.length > 1 || (byFacet && (isCommon || hasManyOwners || isLong(filter.carriers)))) {
    probes.push(...(owners.length > 0 ? owners : ['all' as const]));
    if (hasManyOwners && byFacet && !isCommon) probes.push('facets');
  }
  return { owners, byPhoneNumber: filter.phoneNumber !== null, byFacet, probes, depth };
}

/** More values than this of one owner or of the carriers make a probe cheaper, as a rule, than walking all ranges. */
const MANY = 2;

function nameOf({ owners, byPhoneNumber, byFacet, probes }: Shape): string {
  const by = [byPhoneNumber && 'phone number', ...owners.map(({ name }) => name), byFacet && 'facets'].filter(Boolean);
  const first = byPhoneNumber || probes.length === 0 ? '' : ` after probing ${probes.map(nameOfProbe).join(', ')}`;
  return `list by ${by.join(', ') || 'nothing'}${first}`;
}

const nameOfProbe = (probe: Probe) => (typeof probe === 'string' ? probe : probe.name);

/** Whether nothing is asked of the numbers. */
const isOfAll = ({ owners, byPhoneNumber, byFacet }: Shape) => owners.length === 0 && !byPhoneNumber && !byFacet;

/** An item as JSON text, put together from what was derived when its parts were written. */
const item = sql`
  '{"id":"' || ${numbers.id} || '","phoneNumber":"' || ${numbers.phoneNumber} || '","businessProfile":'
    || (SELECT ${businessProfiles.item} FROM ${businessProfiles} WHERE ${businessProfiles.id} = ${numbers.businessProfileId})
    || ${numbers.itemTail} AS item`;

/** The rows of a page without a filter, read in passing; and whether there is a number after them. */
const firstOfAll = sql`
  SELECT ${numbers.phoneNumber}, ${item} FROM ${numbers}
  WHERE ${numbers.phoneNumber} > ${after} ORDER BY ${numbers.phoneNumber} LIMIT ${size}`;
const isBeforeOthers = sql`(
  SELECT ${numbers.phoneNumber} FROM ${numbers}
  WHERE ${numbers.phoneNumber} > max(shown.phone_number) ORDER BY ${numbers.phoneNumber} LIMIT 1
) IS NOT NULL`;

/** The rows of a page: first which numbers it shows, then what it shows of them; and whether more were found. */
const firstOfFound = (shape: Shape) => sql`
  WITH found AS MATERIALIZED (
    SELECT DISTINCT ON (phone_number) phone_number FROM (${matching(shape)}) AS matching
    ORDER BY phone_number LIMIT ${limit}
  )
  SELECT phone_number, item, (SELECT count(*) FROM found) AS found_count
  FROM (SELECT phone_number FROM found LIMIT ${size}) AS shown
  CROSS JOIN LATERAL (
    SELECT ${item} FROM ${numbers} WHERE ${numbers.phoneNumber} = shown.phone_number OFFSET 0
  ) AS items`;
const isOfMore = sql`coalesce(max(found_count) > count(*), false)`;

/** The phone numbers that match, at least the first `limit` after `after`, in any order and perhaps repeated. */
function matching(shape: Shape): SQL {
  const { owners, byFacet, byPhoneNumber, probes } = shape;
  const wanted = owners.map(
    (owner) => sql`${wantedOf(owner)} AS MATERIALIZED (SELECT unnest(${owner.values}) AS value)`,
  );
  if (byFacet) wanted.push(wantedFacets);
  const steps = byPhoneNumber ? theNumber(shape) : probes.length > 0 ? probeThenWalk(shape) : walk(shape, owners[0]);
  // The steps may begin with common table expressions of their own, so these stand in an outer query.
  return wanted.length > 0 ? sql`WITH ${list(wanted)} SELECT phone_number FROM (${steps}) AS steps` : steps;
}

const wantedOf = ({ name }: Owner) => sql.identifier(`wanted_${name}`);

const list = (parts: readonly (Column | SQL)[], separator = sql`, `) =>
  sql.join(
    parts.map((part) => sql`${part}`),
    separator,
  );

/** The facets that a number the filter asks for is listed under. */
const wantedFacets = (() => {
  const { carrier, feature, detailedStatus, status } = facets;
  const carriers = sql`${sql.placeholder('carriers')}::text[]`;
  const features = sql`${sql.placeholder('features')}::text[]::feature[]`;
  const detailedStatuses = sql`${sql.placeholder('detailedStatuses')}::text[]::detailed_status[]`;
  const dottedStatuses = sql`${sql.placeholder('dottedStatuses')}::text[]::detailed_status[]`;
  const ownStatuses = sql`${sql.placeholder('ownStatuses')}::text[]::status[]`;
  const besideStatuses = sql`${sql.placeholder('besideStatuses')}::text[]::status[]`;
  return sql`wanted_facets AS MATERIALIZED (
    SELECT ${facets.id} AS value FROM ${facets}
    WHERE CASE
      WHEN ${carrier} IS NULL THEN ${status} = ANY (${ownStatuses})
      ELSE (${carriers} IS NULL OR ${carrier} = ANY (${carriers}))
        AND (${features} IS NULL OR ${feature} = ANY (${features}))
        AND (${detailedStatuses} IS NULL OR ${detailedStatus} = ANY (${detailedStatuses}))
        AND (
          ${status} = ANY (${besideStatuses}) OR ${detailedStatus} = ANY (${dottedStatuses})
          OR coalesce(${ownStatuses}, ${besideStatuses}) IS NULL AND ${dottedStatuses} IS NULL
        )
    END
  )`;
})();

/** Walks the ranges of `owner`, or of all numbers, testing the other owners on the way. */
function walk({ owners, byFacet }: Shape, owner?: Owner): SQL {
  const ranges = byFacet ? [...rangesOf(owner, 'ofListing'), ...FACETS] : rangesOf(owner, 'ofNumber');
  return walkRanges(byFacet ? listings : numbers, ranges, {
    most: limit,
    conditions: belongsTo(owners, byFacet ? 'ofListing' : 'ofNumber', owner),
  });
}

/** A column that an index begins with, and the table expression whose values of it are wanted. */
interface Range {
  column: Column;
  wanted: SQL;
}

const FACETS: Range[] = [{ column: listings.facetId, wanted: sql`wanted_facets` }];

function rangesOf(owner: Owner | undefined, where: 'ofNumber' | 'ofListing'): Range[] {
  return owner ? [{ column: owner[where], wanted: sql`${wantedOf(owner)}` }] : [];
}

interface Reading {
  /** The most rows of each range. */
  most: SQL;
  columns?: SQL;
  conditions?: SQL[];
  /** The last number to read, where not all of the range. */
  last?: SQL;
}

/** The first rows of each range after the cursor. */
function walkRanges(table: typeof numbers | typeof listings, ranges: Range[], reading: Reading): SQL {
  const { most, columns = sql`${table.phoneNumber}`, conditions = [], last } = reading;
  const of = ranges.map(({ column }) => column);
  const wanted = ranges.map((_range, index) => sql`${sql.identifier(`range_${index}`)}.value`);
  const from = ranges.map((range, index) => sql`${range.wanted} AS ${sql.identifier(`range_${index}`)}`);
  const order = list([...of, table.phoneNumber]);
  const isInRange = [sql`(${order}) > (${list([...wanted, after])})`];
  if (last) isInRange.push(sql`(${order}) <= (${list([...wanted, last])})`);
  else if (ranges.length > 0) isInRange.push(sql`(${list(of)}) <= (${list(wanted)})`);
  const walked = sql`LATERAL (
    SELECT ${columns} FROM ${table}
    WHERE ${list([...isInRange, ...conditions], AND)}
    ORDER BY ${order} LIMIT ${most}
  ) AS walked`;
  return sql`SELECT walked.* FROM ${list([...from, walked], sql` CROSS JOIN `)}`;
}

const AND = sql` AND `;

/**
 * Whether a row belongs to a wanted owner of each kind but the one that is walked. COALESCE keeps it a test of rows that
 * were found: the bare column would be a condition for another index, whose whole range would be read and sorted.
 */
function belongsTo(owners: readonly Owner[], where: 'ofNumber' | 'ofListing', walked?: Owner): SQL[] {
  return owners
    .filter((owner) => owner !== walked)
    .map((owner) => [owner[where], wantedOf(owner)])
    .map(([column, wanted]) => sql`coalesce(${column}, ${column}) = ANY (ARRAY(SELECT value FROM ${wanted}))`);
}

const isWantedFacet = (facetIds: Column | SQL) => sql`${facetIds} && ARRAY(SELECT value FROM wanted_facets)`;

function theNumber({ owners, byFacet }: Shape): SQL {
  const conditions = [
    sql`${numbers.phoneNumber} = ${phoneNumber}`,
    sql`${numbers.phoneNumber} > ${after}`,
    ...belongsTo(owners, 'ofNumber'),
    ...(byFacet ? [isWantedFacet(numbers.facetIds)] : []),
  ];
  return sql`SELECT ${numbers.phoneNumber} FROM ${numbers} WHERE ${list(conditions, AND)}`;
}

/** Tests the next numbers of the rarest probe, and walks ranges only if they don't fill the page. */
function probeThenWalk(shape: Shape): SQL {
  const probes = shape.probes.map((probe) => {
    const name = nameOfProbe(probe);
    const [bound, next] = [sql.identifier(`bound_${name}`), sql.identifier(`next_${name}`)];
    return { probe, bound, next, literal: sql.raw(`'${name}'`), ...nextNumbers(shape, probe, sql`${bound}`) };
  });
  const reading = probes.flatMap(({ bound, last, next, rows }) => [
    sql`${bound} AS MATERIALIZED (SELECT ${last} AS last)`,
    sql`${next} AS MATERIALIZED (${rows})`,
  ]);
  const reaches = probes.map(
    ({ probe, bound, next, literal }) => sql`
      SELECT ${literal} AS name, ${sql.raw(String(probe !== 'facets'))} AS is_walked, max(phone_number) AS reach,
        count(*) < ${probed(shape, probe)} AND (SELECT last FROM ${bound}) = ${END} AS is_all
      FROM ${next}`,
  );
  const tests = probes.map(
    ({ table, next, literal, conditions }) => sql`
      SELECT phone_number FROM ${next} AS ${table}
      WHERE ${list([sql`(SELECT name FROM lead) = ${literal}`, ...conditions], AND)}`,
  );
  const walks = probes.flatMap(({ probe, literal }) => {
    if (probe === 'facets') return [];
    const walked = walk(shape, probe === 'all' ? undefined : probe);
    return [sql`SELECT phone_number FROM (${walked}) AS walk WHERE (SELECT name FROM rest) = ${literal}`];
  });
  return sql`
    WITH ${list(reading)},
    reaches AS MATERIALIZED (${list(reaches, UNION)}),
    lead AS MATERIALIZED (SELECT * FROM reaches ORDER BY is_all DESC, reach DESC LIMIT 1),
    found AS MATERIALIZED (SELECT phone_number FROM (${list(tests, UNION)}) AS tested LIMIT ${limit}),
    rest AS MATERIALIZED (
      SELECT name FROM reaches
      WHERE is_walked AND NOT (SELECT is_all FROM lead) AND (SELECT count(*) FROM found) < ${limit}
      ORDER BY reach DESC LIMIT 1
    )
    SELECT phone_number FROM found
    UNION ALL
    ${list(walks, UNION)}`;
}

const UNION = sql` UNION ALL `;

/** The most numbers that are probed. */
function probed({ owners, depth }: Shape, probe: Probe): SQL {
  const each = owners.length > 1 ? depth.severalOwners : probe === 'facets' ? depth.facets : depth.owner;
  return sql`(${sql.raw(String(each))} * ${limit})`;
}

/** After every phone number. */
const END = sql`'~'`;

/**
 * The next numbers of a probe, in order, and what else is to be asked of each. Reading that many of each range would be a
 * waste, so a few of each are read first: among them is a number up to which there are surely enough.
 */
function nextNumbers(shape: Shape, probe: Probe, bound: SQL) {
  const { owners, byFacet } = shape;
  const isByFacet = probe === 'facets';
  const table = isByFacet ? listings : numbers;
  const where = isByFacet ? 'ofListing' : 'ofNumber';
  const walked = typeof probe === 'string' ? undefined : probe;
  const ranges = isByFacet ? FACETS : rangesOf(walked, where);
  const most = probed(shape, probe);
  const columns = list([table.phoneNumber, ...owners.map((owner) => owner[where])]);
  const conditions = belongsTo(owners, where, walked);
  if (!isByFacet && byFacet) {
    // A number's row is read where all else fits.
    conditions.push(sql`(
      SELECT ${isWantedFacet(sql`tested.facet_ids`)} FROM ${numbers} AS tested
      WHERE tested.phone_number = ${numbers.phoneNumber} OFFSET 0
    )`);
  }
  const [range] = ranges;
  if (!range) return { table, last: END, rows: walkRanges(table, [], { most, columns }), conditions };
  const few = sql`(SELECT least(${most}, 2 * ${most} / count(*) + 1) FROM ${range.wanted})`;
  const last = sql`CASE WHEN (SELECT count(*) FROM ${range.wanted}) = 1 THEN ${END} ELSE coalesce((
    SELECT phone_number FROM (${walkRanges(table, ranges, { most: few })}) AS few
    ORDER BY phone_number OFFSET ${most} - 1 LIMIT 1
  ), ${END}) END`;
  const upToLast = walkRanges(table, ranges, { most, columns, last: sql`(SELECT last FROM ${bound})` });
  return {
    table,
    last,
    rows: sql`SELECT DISTINCT ON (phone_number) * FROM (${upToLast}) AS next ORDER BY phone_number LIMIT ${most}`,
    conditions,
  };
}
