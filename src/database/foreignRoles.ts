/**
 * Finds roles that have privileges on our tables without a grant by the operator: some providers give a public role
 * privileges on every new table (ALTER DEFAULT PRIVILEGES). A role is reported if it is PUBLIC, or if its privilege is
 * one of the default privileges of the tables' owner. Superusers and members of the owner are not reported. Row-level
 * security makes no difference, because it does not apply to TRUNCATE and triggers.
 */
import { getTableName, is } from 'drizzle-orm';
import { PgTable } from 'drizzle-orm/pg-core';
import type { Database } from './connect.js';
import * as schema from './schema.js';

const TABLES = [
  ...Object.values(schema).flatMap((object) => (is(object, PgTable) ? [getTableName(object)] : [])),
  'deferred',
];

/** Returns a line for each of these roles: what it may read or write, and the statements that revoke its privileges. */
export async function describeForeignRoles({ $client: sql }: Database): Promise<string[]> {
  const rows = await sql<{ role: string; verb: string; names: string; statements: string }[]>`
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
    defaults AS (
      SELECT defaclobjtype AS type, defaclrole AS owner, defaclnamespace AS namespace, grantee, privilege_type
      FROM pg_default_acl, aclexplode(defaclacl)
    ),
    given AS (
      SELECT objects.*, grantee, privilege_type, CASE grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(grantee) END AS role
      FROM objects, aclexplode(acl)
    ),
    held AS (
      SELECT *, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(role) END AS quoted FROM given
      WHERE grantee <> owner AND role <> current_user AND has_schema_privilege(role, namespace, 'USAGE')
        AND (grantee = 0 OR NOT pg_has_role(grantee, owner, 'MEMBER') AND EXISTS (
          SELECT FROM defaults
          WHERE (defaults.type, defaults.owner, defaults.grantee, defaults.privilege_type) =
              (given.type, given.owner, given.grantee, given.privilege_type)
            AND defaults.namespace IN (0, given.namespace)
        ))
    )
    SELECT quoted AS role,
      concat_ws(' and ',
        CASE WHEN bool_or(privilege_type = 'SELECT') THEN 'read' END,
        CASE WHEN bool_or(privilege_type <> 'SELECT') THEN 'write' END
      ) AS verb,
      string_agg(DISTINCT name, ', ') AS names,
      concat_ws('; ',
        'REVOKE ALL ON ' || string_agg(DISTINCT name, ', ') FILTER (WHERE type = 'r') || ' FROM ' || quoted,
        'REVOKE ALL ON ' || min(name) FILTER (WHERE type = 'f') || ' FROM ' || quoted,
        (SELECT string_agg(DISTINCT format('ALTER DEFAULT PRIVILEGES FOR ROLE %I%s REVOKE ALL ON %s FROM %s',
            pg_get_userbyid(owner), ' IN SCHEMA ' || nullif(namespace, 0)::regnamespace,
            CASE type WHEN 'r' THEN 'TABLES' ELSE 'FUNCTIONS' END, quoted), '; ')
          FROM defaults
          WHERE defaults.grantee = held.grantee
            AND EXISTS (
              SELECT FROM objects
              WHERE (objects.type, objects.owner) = (defaults.type::text, defaults.owner)
                AND defaults.namespace IN (0, objects.namespace)
            ))
      ) AS statements
    FROM held GROUP BY quoted, grantee ORDER BY quoted`;
  return rows.map(
    ({ role, verb, names, statements }) =>
      `the role ${role} may ${verb} ${names}; unless that is intended, run ${statements}`,
  );
}
