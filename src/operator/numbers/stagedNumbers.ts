/** The staged numbers of an import: their columns of the temporary table `staged`, and the checks on it. */
import type { Transaction } from '../../database/connection.js';
import type { GivenNumber } from './line.js';
import { type LineFault, MAX_FAULTS } from './lines.js';
import { inUtc } from './time.js';

export const NUMBER_COLUMNS = {
  phone_number: 'text COLLATE "C"',
  id: 'uuid',
  business_profile_id: 'uuid',
  internal_name: 'text COLLATE "C"',
  branding_name_short: 'text COLLATE "C"',
  branding_name_long: 'text COLLATE "C"',
  reporting_group: 'text COLLATE "C"',
  created_at: 'timestamptz',
  updated_at: 'timestamptz',
  carriers: 'text[] COLLATE "C"',
  features: 'feature[]',
  detailed_statuses: 'detailed_status[]',
  created_ats: 'timestamptz[]',
};

/** The columns of `staged`. */
export const COLUMNS = {
  ...NUMBER_COLUMNS,
  business_name: 'text COLLATE "C"',
  business_status: 'text COLLATE "C"',
};

/** Returns the columns of a number in the text format of COPY. */
export function rowOf({ businessProfile: profile, carrierStatuses, ...number }: GivenNumber): string {
  const row: Record<keyof typeof COLUMNS, unknown> = {
    phone_number: number.phoneNumber,
    id: number.id,
    business_profile_id: profile.id,
    internal_name: number.internalName,
    branding_name_short: number.brandingNameShort,
    branding_name_long: number.brandingNameLong,
    reporting_group: number.reportingGroup,
    created_at: number.createdAt && inUtc(number.createdAt),
    updated_at: number.updatedAt && inUtc(number.updatedAt),
    carriers: arrayOf(carrierStatuses.map(({ carrier }) => `"${carrier.replace(/["\\]/g, '\\$&')}"`)),
    features: arrayOf(carrierStatuses.map(({ feature }) => feature)),
    detailed_statuses: arrayOf(carrierStatuses.map(({ detailedStatus }) => detailedStatus)),
    created_ats: arrayOf(carrierStatuses.map(({ createdAt }) => (createdAt ? inUtc(createdAt) : 'NULL'))),
    business_name: profile.businessName,
    business_status: profile.status,
  };
  const values = NAMES.map((name) => row[name]);
  // Validated text holds no control characters, so only the backslash needs care.
  return values.map((value) => (value == null ? '\\N' : String(value).replaceAll('\\', '\\\\'))).join('\t');
}

const NAMES = Object.keys(COLUMNS) as (keyof typeof COLUMNS)[];

const arrayOf = (elements: string[]) => `{${elements.join(',')}}`;

/** Finds lines that contradict an earlier line, and lines whose id belongs to another number in the database. */
export function contradictions(sql: Transaction): Promise<LineFault[]>[] {
  return [
    sql<LineFault[]>`
      SELECT line, phone_number AS "phoneNumber", format('id %s belongs to another number', id) AS reason, earlier
      FROM (
        SELECT
          line, id, phone_number,
          min(line) OVER same_id AS earlier,
          first_value(phone_number) OVER (same_id ORDER BY line) AS earlier_phone_number
        FROM staged
        WHERE id IN (SELECT id FROM staged WHERE id IS NOT NULL GROUP BY id HAVING count(*) > 1)
        WINDOW same_id AS (PARTITION BY id)
      ) AS repeated
      WHERE line > earlier AND phone_number <> earlier_phone_number
      ORDER BY line LIMIT ${MAX_FAULTS}`,
    sql<LineFault[]>`
      SELECT
        line, phone_number AS "phoneNumber",
        format('businessProfile.%s differs from an earlier one of businessProfile.id %s',
          CASE WHEN business_name = earlier_name THEN 'status' ELSE 'businessName' END, business_profile_id) AS reason,
        earlier
      FROM (
        SELECT
          line, phone_number, business_profile_id, business_name, business_status,
          first_value(line) OVER by_line AS earlier,
          first_value(business_name) OVER by_line AS earlier_name,
          first_value(business_status) OVER by_line AS earlier_status
        FROM staged
        WHERE business_profile_id IN (
          SELECT business_profile_id
          FROM (SELECT DISTINCT business_profile_id, business_name, business_status FROM staged) AS profile
          GROUP BY business_profile_id HAVING count(*) > 1
        )
        WINDOW by_line AS (PARTITION BY business_profile_id ORDER BY line)
      ) AS contradicting
      WHERE (business_name, business_status) <> (earlier_name, earlier_status)
      ORDER BY line LIMIT ${MAX_FAULTS}`,
    sql<LineFault[]>`
      SELECT
        line, staged.phone_number AS "phoneNumber",
        format('id %s belongs to another number, %s', id, number.phone_number) AS reason
      FROM staged CROSS JOIN LATERAL (
        SELECT phone_number FROM branded_phone_numbers WHERE id = staged.id OFFSET 0
      ) AS number
      WHERE id IS NOT NULL AND staged.phone_number <> number.phone_number
      ORDER BY line LIMIT ${MAX_FAULTS}`,
  ];
}
