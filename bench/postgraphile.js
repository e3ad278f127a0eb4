// PostGraphile 5 over the tables, out of the box: its Amber and V4 presets and nothing else.
import { createServer } from 'node:http';
import { postgraphile } from 'postgraphile';
import { makePgService } from 'postgraphile/adaptors/pg';
import { grafserv } from 'postgraphile/grafserv/node';
import { PostGraphileAmberPreset } from 'postgraphile/presets/amber';
import { makeV4Preset } from 'postgraphile/presets/v4';

const preset = {
  extends: [PostGraphileAmberPreset, makeV4Preset({})],
  grafserv: { graphqlPath: '/graphql', watch: false },
  grafast: { explain: false },
  pgServices: [makePgService({ connectionString: process.env.DATABASE_URL, schemas: ['public'] })],
};
const instance = postgraphile(preset);
await instance.getSchema();
const serve = instance.createServ(grafserv);
const server = createServer((request, response) => {
  if (request.url === '/ready') response.end();
});
server.removeAllListeners('request');
await serve.addTo(server);
const [handle] = server.listeners('request');
server.removeAllListeners('request');
server.on('request', (request, response) => (request.url === '/ready' ? response.end() : handle(request, response)));
server.listen(Number(process.env.PORT), '127.0.0.1');
