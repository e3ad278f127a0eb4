/** Clients that do not read the pages that they request, and so have the service hold them. */
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { connectTo } from './connection.js';
import { openSocket } from './rawHttp.js';

/**
 * Writes numbers of which the last, which is not on the first page, has an item of 6 MB: more than the system takes for a client
 * that does not read. Requests it `count` times, within the rate limit; returns a function that closes the connections, and deletes
 * the numbers.
 */
export async function holdPages(
  url: string,
  databaseUrl: string,
  { headers = '', count = 30 } = {},
): Promise<() => Promise<void>> {
  const sql = connectTo(databaseUrl);
  const id = '6513270e-269e-4d37-b2a7-4de452e6b438';
  await sql`INSERT INTO business_profiles VALUES (${id}, 'Circle Bank', 'approved') ON CONFLICT DO NOTHING`;
  await sql`
    INSERT INTO branded_phone_numbers (phone_number, business_profile_id)
    SELECT '+1415555' || i, ${id} FROM generate_series(1000, 1099) AS i`;
  await sql`UPDATE items SET item_tail = rpad(item_tail, 6000000) WHERE phone_number = '+14155551099'`;
  const request = `GET /v1/brandedPhoneNumbers?phoneNumber=%2B14155551099 HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n`;
  const sockets: Socket[] = [];
  for (let i = 0; i < count; i++) {
    const socket = openSocket(url).pause();
    socket.write(request);
    sockets.push(socket);
    await sleep(110);
  }
  return async () => {
    for (const socket of sockets) socket.destroy();
    await sql`DELETE FROM branded_phone_numbers`;
    await sql.end();
  };
}
