// Loads a server for some seconds with requests for each of the paths in turn, and prints the rate. Each request comes
// from another client address, so that the rate limit counts every request but refuses none.
import autocannon from 'autocannon';

const { origin, paths, connections, seconds, headers } = JSON.parse(process.argv[2]);
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
  const address = `10.${(sent >> 16) & 255}.${(sent >> 8) & 255}.${sent & 255}`;
  return { ...request, headers: { ...headers, 'x-forwarded-for': address } };
}
