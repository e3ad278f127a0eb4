// Loads a server for some seconds, with each of the paths in turn, and prints the rate. Each request comes from a
// different client address, so that the rate limit counts every request but refuses none.
import autocannon from 'autocannon';

const { origin, paths, connections, seconds, headers: given, body } = JSON.parse(process.argv[2]);
let sent = 0;
const result = await autocannon({
  url: origin,
  connections,
  duration: seconds,
  requests: paths.map((path) => ({ path, setupRequest })),
});
console.log(JSON.stringify({ perSecond: result.requests.average, refused: result.non2xx, errors: result.errors }));

function setupRequest(request) {
  sent++;
  const headers = { ...given, 'x-forwarded-for': `10.${(sent >> 16) & 255}.${(sent >> 8) & 255}.${sent & 255}` };
  if (!body) return { ...request, headers };
  return { ...request, method: 'POST', body, headers: { ...headers, 'content-type': 'application/json' } };
}
