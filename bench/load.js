// Loads a URL for some seconds and prints autocannon's result. Each request comes from another client address, so that
// the rate limit counts and lets pass.
import autocannon from 'autocannon';

const [url, connections, seconds, body] = process.argv.slice(2);
let sent = 0;
const result = await autocannon({
  url,
  connections: Number(connections),
  duration: Number(seconds),
  ...(body && { method: 'POST', body, headers: { 'content-type': 'application/json' } }),
  setupClient: (client) => {
    client.setHeaders({ 'x-forwarded-for': address(), ...(body && { 'content-type': 'application/json' }) });
    client.on('response', () =>
      client.setHeaders({ 'x-forwarded-for': address(), ...(body && { 'content-type': 'application/json' }) }),
    );
  },
});
console.log(JSON.stringify({ perSecond: result.requests.average, refused: result.non2xx, errors: result.errors }));

function address() {
  sent++;
  return `10.${(sent >> 16) & 255}.${(sent >> 8) & 255}.${sent & 255}`;
}
