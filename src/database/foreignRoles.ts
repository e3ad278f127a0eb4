/**
 * Finds roles that have privileges on our tables without a grant by the operator: some providers give a public role
 * privileges on every new table (ALTER DEFAULT PRIVILEGES). A role is reported if it is PUBLIC, or if its privilege is
 * one of the default privileges of the tables' owner. Superusers and members of the owner are not reported. Row-level
 * security makes no difference, because it does not apply to TRUNCATE and triggers.
 */
import { type Query, queryOnce } from './connection.js';
import { getTableName } from './drizzle.js';
import * as schema from './schema.js';

const TABLES = [
  ...Object.values(schema).flatMap((object) => ('enumName' in object ? [] : [getTableName(object)])),
  // Not in Drizzle's schema: the numbers that a transaction has yet to derive (drizzle/current.sql).
  'deferred',
];

/** Returns a line for each of these roles, which says what it may read or write. */
export async function findForeignRoles(url: string): Promise<string[]> {
  const find: Query<{ role: string; verb: string; names: string }[]> = ({ $client: sql }) => sql`
    WITH objects AS (
      SELECT relname AS name, relnamespace AS namespace, relowner AS owner, relacl AS acl, 'r' AS type
      FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname = ANY(${TABLES}::text[])
      UNION ALL
      SELECT 'drizzle.' || relname, relnamespace, relowner, relacl, 'r'
      FROM pg_class WHERE relnamespace = to_regnamespace('drizzle') AND relname = '__drizzle_migrations'
      UNION ALL
      SELECT 'FUNCTION derive', pronamespace, proowner, proacl, 'f'
      FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proname = 'derive'
    ),
    given AS (
      SELECT objects.*, grantee, privilege_type, CASE grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(grantee) END AS role
      FROM objects, aclexplode(acl)
    )
    SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(role) END AS role,
      concat_ws(' and ',
        CASE WHEN bool_or(privilege_type = 'SELECT') THEN 'read' END,
        CASE WHEN bool_or(privilege_type <> 'SELECT') THEN 'write' END
      ) AS verb,
      string_agg(DISTINCT name, ', ') AS names
    FROM given
    WHERE role <> current_user AND has_schema_privilege(role, namespace, 'USAGE')
      AND (grantee = 0 OR NOT pg_has_role(grantee, owner, 'MEMBER') AND EXISTS (
        SELECT FROM pg_default_acl, aclexplode(defaclacl) AS default_acl
        WHERE (defaclobjtype::text, defaclrole, default_acl.grantee, default_acl.privilege_type) =
            (type, owner, given.grantee, given.privilege_type)
          AND defaclnamespace IN (0, namespace)
      ))
    GROUP BY grantee, given.role ORDER BY 1`;
  return (await queryOnce(url, find)).map(
    ({ role, verb, names }) => `the role ${role} may ${verb} ${names}; unless that is intended, revoke its privileges`,
  );
}
