/**
 * Clients that send expensive requests in a row, each on one connection and from one address. Prints the number of
 * responses by status, as JSON. Runs as a separate process, so that it does not delay the measurements of the test:
 * `expensiveFlood.ts URL CLIENTS SECONDS`.
 */
import { Agent, get } from 'node:http';
import { expensiveRequests } from '../support/expensiveRequests.js';

const [url = '', clients = '', seconds = ''] = process.argv.slice(2);
const statuses: Record<string, number> = {};
const end = performance.now() + Number(seconds) * 1000;

await Promise.all(
  Array.from({ length: Number(clients) }, async (_, client) => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    for (let i = client; performance.now() < end; i++) {
      const { path, headers } = expensiveRequests[i % expensiveRequests.length] as (typeof expensiveRequests)[number];
      const status = await send(agent, path, { 'X-Forwarded-For': `198.51.100.${client}`, ...headers });
      statuses[status] = (statuses[status] ?? 0) + 1;
    }
    agent.destroy();
  }),
);
console.log(JSON.stringify(statuses));

function send(agent: Agent, path: string, headers: Record<string, string>): Promise<number | 'none'> {
  return new Promise((resolve) => {
    get(url, { agent, path, headers }, (response) => {
      response.resume().once('close', () => resolve(response.statusCode ?? 0));
    }).once('error', () => resolve('none'));
  });
}
