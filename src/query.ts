/**
 * The list query: from a filter to the rows of a page.
 *
 * A page must cost the same however many numbers match and however many there are, so the planner is left no choice.
 * Every filter is turned into walks: ranges of an index in which the phone numbers already stand in the order of the
 * pages, so that reading the first few of each and merging them is enough.
 *
 * - Filters on the number alone walk `branded_phone_numbers`, one range for each wanted owner and status.
 * - Filters on entries walk `listed_carrier_statuses`, one range for each wanted owner and combination.
 * - Several kinds of owners at once: the rarest of them leads, the others are compared in the same index.
 * - A given phone number is one row; everything else is tested on it.
 *
 * A range is written as a row comparison, `(a, b, phone) > (…) AND (a, b) <= (…) ORDER BY a, b, phone`, not as
 * equalities: with equalities the order by phone number alone would do, other indexes could give it too, and the planner
 * might walk millions of rows of one of them in search of a rare match. Only the index that is meant has this order.
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
import { ALL_STATUSES } from './status.js';

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

const given = {
  after: sql.placeholder('after'),
  limit: sql.placeholder('limit'),
  phoneNumber: sql`${sql.placeholder('phoneNumber')}::text`,
  carriers: sql`${sql.placeholder('carriers')}::text[]`,
  features: sql`${sql.placeholder('features')}::text[]::feature[]`,
  detailedStatuses: sql`${sql.placeholder('detailedStatuses')}::text[]::detailed_status[]`,
  dottedStatuses: sql`${sql.placeholder('dottedStatuses')}::text[]::detailed_status[]`,
  statuses: sql`${sql.placeholder('statuses')}::text[]::status[]`,
  walkedStatuses: sql`${sql.placeholder('walkedStatuses')}::text[]::status[]`,
  entryStatuses: sql`${sql.placeholder('entryStatuses')}::text[]::status[]`,
};

/** What a number belongs to: the columns that a filter can name it by, and the values that this request names. */
interface Owner {
  name: 'businessProfiles' | 'reportingGroups' | 'internalNames';
  ofNumber: Column;
  ofEntry: Column;
  values: SQL;
}

const OWNERS: readonly Owner[] = [
  {
    name: 'reportingGroups',
    ofNumber: numbers.reportingGroup,
    ofEntry: listed.reportingGroup,
    values: sql`${sql.placeholder('reportingGroups')}::text[]`,
  },
  {
    name: 'internalNames',
    ofNumber: numbers.internalName,
    ofEntry: listed.internalName,
    values: sql`${sql.placeholder('internalNames')}::text[]`,
  },
  {
    name: 'businessProfiles',
    ofNumber: numbers.businessProfileId,
    ofEntry: listed.businessProfileId,
    values: sql`${sql.placeholder('businessProfiles')}::uuid[]`,
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
}

/** Prepares the list query on `database`; each shape of it is compiled once and prepared once on each connection. */
export function preparePages(database: Database): (request: PageRequest) => Promise<PageRow[]> {
  const statements = new Map<string, ReturnType<typeof prepare>>();

  function prepare(name: string, shape: Shape) {
    return database
      .select({ phoneNumber: sql<string>`found.phone_number`, item: sql<string>`to_json(item)::text` })
      .from(sql`(
        SELECT DISTINCT phone_number FROM (${matching(shape)}) AS matching
        ORDER BY phone_number LIMIT ${given.limit}
      ) AS found`)
      .crossJoin(sql`LATERAL (${item}) AS item`)
      .orderBy(sql`found.phone_number`)
      .prepare(name);
  }

  return async ({ filter, visibleProfiles, after, limit }) => {
    const businessProfiles = profilesOf(filter, visibleProfiles);
    if (businessProfiles?.length === 0) return [];
    const { phoneNumber, reportingGroups, internalNames, carriers, features, detailedStatuses } = filter;
    const { statuses, dottedStatuses } = filter;
    const values = { businessProfiles, reportingGroups, internalNames };
    const filtersEntries = carriers !== null || features !== null || detailedStatuses !== null;
    const entryTest = entryTestOf(filter, filtersEntries);
    const shape: Shape = {
      owners: OWNERS.filter((owner) => values[owner.name] !== null),
      entryTest,
      byPhoneNumber: phoneNumber !== null,
      byStatus: statuses !== null,
    };
    const name = nameOf(shape);
    const statement = statements.get(name) ?? prepare(name, shape);
    statements.set(name, statement);
    return statement.execute({
      ...values,
      after,
      limit,
      phoneNumber,
      carriers,
      features,
      detailedStatuses,
      dottedStatuses,
      statuses: statuses ?? ALL_STATUSES,
      // With several owners the entries are tested on the numbers of one of them, whatever their status.
      walkedStatuses: (shape.owners.length > 1 && entryTest !== 'none' ? null : statuses) ?? ALL_STATUSES,
      entryStatuses: filtersEntries ? statuses : null,
    });
  };
}

function profilesOf({ businessProfileId }: Filter, visible: readonly string[] | null): readonly string[] | null {
  if (businessProfileId === null) return visible;
  return visible === null || visible.includes(businessProfileId) ? [businessProfileId] : [];
}

function entryTestOf({ statuses, dottedStatuses }: Filter, filtersEntries: boolean): EntryTest {
  if (filtersEntries) return 'needed';
  if (dottedStatuses === null) return 'none';
  return statuses === null ? 'needed' : 'or status';
}

function nameOf({ owners, entryTest, byPhoneNumber, byStatus }: Shape): string {
  const by = [byPhoneNumber && 'phone number', ...owners.map(({ name }) => name), byStatus && 'status'].filter(Boolean);
  return `list by ${by.join(', ') || 'nothing'}; entry ${entryTest}`;
}

/** The phone numbers that match, at least the first `limit` after `after`, in any order and perhaps repeated. */
function matching(shape: Shape): SQL {
  const { owners, entryTest, byPhoneNumber, byStatus } = shape;
  if (byPhoneNumber) return theNumber(shape);
  if (owners.length > 1) return walkRarestOwner(shape);
  const [owner] = owners;
  if (entryTest === 'needed') return walkEntries(owner);
  if (entryTest === 'or status') return sql`${walkNumbers(owner)} UNION ALL ${walkEntries(owner)}`;
  return owner || byStatus ? walkNumbers(owner) : walkAll;
}

const walkAll = sql`(
  SELECT ${numbers.phoneNumber} FROM ${numbers}
  WHERE ${numbers.phoneNumber} > ${given.after} ORDER BY ${numbers.phoneNumber} LIMIT ${given.limit}
)`;

/** One range for each wanted owner and status. */
function walkNumbers(owner: Owner | undefined, condition = sql`TRUE`): SQL {
  const range = owner ? sql`${owner.ofNumber}, ${numbers.status}` : sql`${numbers.status}`;
  const wanted = owner ? sql`wanted_owner, wanted_status` : sql`wanted_status`;
  const owners = owner ? sql`unnest(${owner.values}) AS wanted_owner CROSS JOIN` : sql``;
  return sql`
    SELECT walked.phone_number
    FROM ${owners} unnest(${given.walkedStatuses}) AS wanted_status
    CROSS JOIN LATERAL (
      SELECT ${numbers.phoneNumber} FROM ${numbers}
      WHERE (${range}, ${numbers.phoneNumber}) > (${wanted}, ${given.after})
        AND (${range}) <= (${wanted})
        AND ${condition}
      ORDER BY ${range}, ${numbers.phoneNumber} LIMIT ${given.limit}
    ) AS walked`;
}

/** One range for each wanted owner and combination. */
function walkEntries(owner: Owner | undefined): SQL {
  const range = owner ? sql`${owner.ofEntry}, ${listed.combinationId}` : sql`${listed.combinationId}`;
  const wanted = owner ? sql`wanted_owner, ${combinations.id}` : sql`${combinations.id}`;
  const owners = owner ? sql`unnest(${owner.values}) AS wanted_owner CROSS JOIN` : sql``;
  return sql`
    SELECT walked.phone_number
    FROM ${owners} ${combinations}
    CROSS JOIN LATERAL (
      SELECT ${listed.phoneNumber} FROM ${listed}
      WHERE (${range}, ${listed.phoneNumber}) > (${wanted}, ${given.after})
        AND (${range}) <= (${wanted})
      ORDER BY ${range}, ${listed.phoneNumber} LIMIT ${given.limit}
    ) AS walked
    WHERE ${entryMatches}`;
}

/** Whether an entry with this combination is one that the filter asks for. */
const entryMatches = sql`
  (${given.carriers} IS NULL OR ${combinations.carrier} = ANY (${given.carriers}))
  AND (${given.features} IS NULL OR ${combinations.feature} = ANY (${given.features}))
  AND (${given.detailedStatuses} IS NULL OR ${combinations.detailedStatus} = ANY (${given.detailedStatuses}))
  AND (
    (${given.entryStatuses} IS NULL AND ${given.dottedStatuses} IS NULL)
    OR ${combinations.status} = ANY (${given.entryStatuses})
    OR ${combinations.detailedStatus} = ANY (${given.dottedStatuses})
  )`;

/** The same for a number: whether one of its entries is asked for, or its status, as the shape has it. */
function numberMatches(entryTest: EntryTest): SQL {
  const statusMatches = sql`${numbers.status} = ANY (${given.statuses})`;
  const hasEntry = sql`EXISTS (
    SELECT FROM ${listed} JOIN ${combinations} ON ${combinations.id} = ${listed.combinationId}
    WHERE ${listed.phoneNumber} = ${numbers.phoneNumber} AND ${entryMatches}
    OFFSET 0
  )`; // OFFSET keeps it a test of one number: as a join the planner might read all entries first.
  if (entryTest === 'none') return statusMatches;
  return entryTest === 'needed' ? hasEntry : sql`(${statusMatches} OR ${hasEntry})`;
}

function belongsTo(owners: readonly Owner[]): SQL[] {
  return owners.map((owner) => sql`${owner.ofNumber} = ANY (${owner.values})`);
}

function theNumber({ owners, entryTest }: Shape): SQL {
  const conditions = [...belongsTo(owners), numberMatches(entryTest)];
  return sql`
    SELECT ${numbers.phoneNumber} FROM ${numbers}
    WHERE ${numbers.phoneNumber} = ${given.phoneNumber} AND ${numbers.phoneNumber} > ${given.after}
      AND ${sql.join(conditions, sql` AND `)}`;
}

/** How many numbers of each owner are counted to find the rarest; a tie beyond it goes to the first. */
const COUNTED = 10_000;

/** All owners are counted a little way, and only the one with the fewest numbers is walked. */
function walkRarestOwner({ owners, entryTest }: Shape): SQL {
  const sizes = owners.map(
    (owner) => sql`
      SELECT ${owner.name}::text AS owner, count(*) AS size FROM (
        SELECT FROM unnest(${owner.values}) AS wanted_owner CROSS JOIN LATERAL (
          SELECT FROM ${numbers}
          WHERE (${owner.ofNumber}, ${numbers.status}, ${numbers.phoneNumber}) > (wanted_owner, ${ALL_STATUSES[0]}::status, '')
            AND (${owner.ofNumber}) <= (wanted_owner)
          ORDER BY ${owner.ofNumber}, ${numbers.status}, ${numbers.phoneNumber}
          LIMIT ${sql.raw(String(COUNTED))}
        ) AS counted
        LIMIT ${sql.raw(String(COUNTED))}
      ) AS counted`,
  );
  const walks = owners.map((owner) => {
    const others = owners.filter((other) => other !== owner);
    const condition = sql.join([...belongsTo(others), numberMatches(entryTest)], sql` AND `);
    return sql`SELECT phone_number FROM (${walkNumbers(owner, condition)}) AS walk WHERE (SELECT owner FROM rarest) = ${owner.name}`;
  });
  return sql`
    WITH rarest AS MATERIALIZED (
      SELECT owner FROM (${sql.join(sizes, sql` UNION ALL `)}) AS sizes ORDER BY size LIMIT 1
    )
    ${sql.join(walks, sql` UNION ALL `)}`;
}

/** Every member of an item and where it comes from, in the contract's order; the database makes the JSON of it. */
const members = {
  id: numbers.id,
  phoneNumber: numbers.phoneNumber,
  businessProfile: sql`(
    SELECT json_build_object(
      'id', ${businessProfiles.id}, 'businessName', ${businessProfiles.businessName}, 'status', ${businessProfiles.status}
    ) FROM ${businessProfiles} WHERE ${businessProfiles.id} = ${numbers.businessProfileId}
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
