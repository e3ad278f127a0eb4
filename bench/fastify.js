// The service as one might write it by hand, with Fastify and postgres.js: the obvious query as a prepared statement, and
// only Fastify's validation, no rate limit and no log. It serves the first page, or the page after the phone number ?after=,
// with the filters of the specification's examples.
import Fastify from 'fastify';
import postgres from 'postgres';

const sql = postgres(process.env.DATABASE_URL, { max: 10 });
const app = Fastify();
const list = { type: 'array', items: { type: 'string' } };
const querystring = {
  type: 'object',
  properties: {
    after: { type: 'string' },
    size: { type: 'integer', default: 25 },
    phoneNumber: { type: 'string' },
    carrier: list,
    feature: list,
    status: list,
  },
};

app.get('/v1/brandedPhoneNumbers', { schema: { querystring } }, async ({ query }) => {
  const { after = '', size, phoneNumber, carrier, feature, status } = query;
  const statuses = status?.filter((value) => !value.includes('.'));
  const detailedStatuses = status?.filter((value) => value.includes('.'));
  const entryConditions = [
    ...(carrier ? [sql`carrier IN ${sql(carrier)}`] : []),
    ...(feature ? [sql`feature IN ${sql(feature)}`] : []),
    ...(detailedStatuses?.length ? [sql`detailed_status IN ${sql(detailedStatuses)}`] : []),
  ];
  const rows = await sql`
    SELECT
      number.id, phone_number AS "phoneNumber",
      json_build_object('id', profile.id, 'businessName', business_name, 'status', profile.status) AS "businessProfile",
      number.internal_name AS "internalName", branding_name_short AS "brandingNameShort",
      branding_name_long AS "brandingNameLong", number.reporting_group AS "reportingGroup", items.status,
      (
        SELECT json_agg(json_build_object(
          'carrier', carrier, 'feature', feature, 'detailedStatus', detailed_status, 'createdAt', entry.created_at
        ) ORDER BY carrier, feature)
        FROM carrier_statuses AS entry WHERE entry.phone_number = number.phone_number
      ) AS "carrierStatuses",
      number.created_at AS "createdAt", items.updated_at AS "updatedAt"
    FROM branded_phone_numbers AS number JOIN items USING (phone_number)
    JOIN business_profiles AS profile ON profile.id = number.business_profile_id
    WHERE phone_number > ${after}
      ${phoneNumber ? sql`AND phone_number = ${phoneNumber}` : sql``}
      ${statuses?.length ? sql`AND items.status IN ${sql(statuses)}` : sql``}
      ${
        entryConditions.length
          ? sql`AND EXISTS (
            SELECT FROM carrier_statuses AS entry
            WHERE entry.phone_number = number.phone_number ${entryConditions.map((condition) => sql`AND ${condition}`)}
          )`
          : sql``
      }
    ORDER BY phone_number LIMIT ${size + 1}`;
  const items = rows.slice(0, size);
  return { items, nextCursor: rows.length > size ? Buffer.from(items.at(-1).phoneNumber).toString('base64url') : null };
});

await app.listen({ port: Number(process.env.PORT), host: '127.0.0.1' });
