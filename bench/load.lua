-- Loads a server with requests for each of the paths in turn, and prints the counts as JSON, for wrk. Each request comes from
-- another client address, so that the rate limit counts every request but refuses none.
local paths, sent = {}, 0

function init(args)
  paths = args
end

function request()
  sent = sent + 1
  wrk.headers['X-Forwarded-For'] = string.format('10.%d.%d.%d', sent / 65536 % 256, sent / 256 % 256, sent % 256)
  return wrk.format('GET', paths[sent % #paths + 1])
end

function done(summary)
  local failed, line = summary.errors, '{"requests":%d,"seconds":%f,"refused":%d,"errors":%d}\n'
  local errors = failed.connect + failed.read + failed.write + failed.timeout
  io.write(line:format(summary.requests, summary.duration / 1e6, failed.status, errors))
end
