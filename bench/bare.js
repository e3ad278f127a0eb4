// A server with as little code as possible, on Node's HTTP server and postgres.js: no router, validation, rate limit or log.
// It runs the statement that the service prepares for the first page, and sends the response without a cursor.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import postgres from 'postgres';
import { planningOptions } from '../dist/src/config/sessionSettings.js';

const { query, values } = JSON.parse(readFileSync(process.env.STATEMENT, 'utf8'));
const sql = postgres(process.env.DATABASE_URL, { max: 10, connection: planningOptions });

createServer(async (_request, response) => {
  const [page] = await sql.unsafe(query, values, { prepare: true });
  const body = Buffer.from(`{"items":[${page.items}],"nextCursor":null}`);
  response.writeHead(200, { 'Content-Type': 'application/json; charset=utf-8', 'Content-Length': body.length });
  response.end(body);
}).listen(Number(process.env.PORT), '127.0.0.1');
