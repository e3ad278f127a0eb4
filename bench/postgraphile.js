// PostGraphile 5 over the tables, with its Amber and V4 presets. GET requests are enabled only to check that it is ready.
import { createServer } from 'node:http';
import { postgraphile } from 'postgraphile';
import { makePgService } from 'postgraphile/adaptors/pg';
import { grafserv } from 'postgraphile/grafserv/node';
import { PostGraphileAmberPreset } from 'postgraphile/presets/amber';
import { makeV4Preset } from 'postgraphile/presets/v4';

const instance = postgraphile({
  extends: [PostGraphileAmberPreset, makeV4Preset({})],
  grafserv: { graphqlPath: '/graphql', graphqlOverGET: true, watch: false },
  grafast: { explain: false },
  pgServices: [makePgService({ connectionString: process.env.DATABASE_URL, schemas: ['public'] })],
});
await instance.getSchema();
const server = createServer();
await instance.createServ(grafserv).addTo(server);
server.listen(Number(process.env.PORT), '127.0.0.1');
