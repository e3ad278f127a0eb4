// Platformatic DB over the tables, with its default settings.
import { buildServer } from '@platformatic/db';

const app = await buildServer({
  server: { hostname: '127.0.0.1', port: Number(process.env.PORT), logger: { level: 'silent' } },
  db: { connectionString: process.env.DATABASE_URL, graphql: true, openapi: false, schemalock: false },
  watch: false,
});
await app.start();
