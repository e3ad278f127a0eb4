// A server with as little code as possible, on Node's HTTP server and postgres.js: no router, validation, rate limit or log.
// It runs the statement that the service prepares for the first page, on as many connections, and passes on the bytes of the
// items, without a cursor.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import postgres from 'postgres';
import { sessionSettings } from '../dist/src/config/sessionSettings.js';

const { query, values } = JSON.parse(readFileSync(process.env.STATEMENT, 'utf8'));
const sql = postgres(process.env.DATABASE_URL, { max: 4, connection: sessionSettings });
const [BEGIN, END] = ['{"items":[', '],"nextCursor":null}'].map((text) => Buffer.from(text));

createServer(async (_request, response) => {
  const [[items]] = await sql.unsafe(query, values, { prepare: true }).raw();
  const body = Buffer.concat([BEGIN, items, END]);
  response.writeHead(200, { 'Content-Type': 'application/json; charset=utf-8', 'Content-Length': body.length });
  response.end(body);
}).listen(Number(process.env.PORT), '127.0.0.1');
