/**
 * Connections to PostgreSQL that can be given up for new ones. postgres.js waits for ever on a connection that was cut
 * without a word, and reconnects without a pause where a connection is accepted and closed again. So the client here is
 * replaceable, whoever holds it: `renew` finds out which host answers on a fresh connection, puts a new client in the
 * place of the old one and cuts the old one's connections, which fails what waits on them.
 */
import { Socket } from 'node:net';
import postgres, { type Options, type Sql } from 'postgres';
import { hostsOf } from './databaseUrl.js';

/** Milliseconds for a connection to be made and to answer, of a pool or of a probe. */
const CONNECT_LIMIT = 1500;
const PROBE_LIMIT = 1000;
/** Milliseconds between the attempts to make one connection, after failures. */
const LONGEST_PAUSE = 500;
/** Milliseconds for a connection that is given up to end. */
const GOODBYE = 200;
/** Connections in a row that were closed before they said a word, after which a query that waits for one fails. */
const SILENT_CLOSES = 3;

type Settings = Options<Record<string, postgres.PostgresType>>;

/** One postgres.js client and the sockets it has open. */
interface Generation {
  sql: Sql;
  host: string;
  name: string;
  cut(): void;
}

/** What is known of the connections by those who use them. */
interface Need {
  /** Statements that have been sent and are not answered yet. */
  waiting: number;
  /** There are some, and none has been answered lately. */
  isSilent: boolean;
}

export interface Pool {
  /** Always the current client. What runs on it when it is replaced fails with a connection error. */
  client: Sql;
  /**
   * Asks on a fresh connection which host answers, and moves there if need be. The connections are given up if the host
   * is another one; if the one in use works on less than half of the statements that we wait for; and if no host answers,
   * nor the connections do. Resolves to whether any host answers.
   */
  renew(need: Need): Promise<boolean>;
}

let opened = 0;

/** Opens a pool on `url`, of one or several hosts; nothing is sent before the first query. */
export function openPool(url: string, settings: Settings, onRenewal: () => void): Pool {
  const hosts = hostsOf(url);
  let current = openGeneration(hosts[0] ?? url, settings);
  let renewal: Promise<boolean> | undefined;
  let ended = false;

  async function renew({ waiting, isSilent }: Need): Promise<boolean> {
    const answers = await Promise.all(hosts.map((host) => probe(host, current.name, settings)));
    if (ended) return false;
    // The one in use goes on being used as long as it answers; it may have been promoted while the first was away.
    const inUse = hosts.indexOf(current.host);
    const next = answers[inUse] === undefined ? answers.findIndex((working) => working !== undefined) : inUse;
    const host = hosts[next];
    if (host === undefined) {
      if (isSilent) replace(current.host);
      return false;
    }
    const isStuck = 2 * (answers[next] ?? 0) < Math.min(waiting, Number(settings.max));
    if (next !== inUse || isStuck) {
      replace(host);
      onRenewal();
    }
    return true;
  }

  function replace(host: string): void {
    const old = current;
    current = openGeneration(host, settings);
    // What drizzle has set on the first client.
    Object.assign(current.sql.options.parsers, old.sql.options.parsers);
    Object.assign(current.sql.options.serializers, old.sql.options.serializers);
    old.cut();
  }

  const client = new Proxy((() => {}) as unknown as Sql, {
    apply: (_target, _this, given) => Reflect.apply(current.sql as never, undefined, given),
    get(_target, name) {
      if (name === 'end') {
        return async (options?: { timeout?: number }) => {
          ended = true;
          await current.sql.end(options);
          current.cut();
        };
      }
      return current.sql[name as keyof Sql];
    },
  });
  return {
    client,
    renew(need) {
      renewal ??= renew(need).finally(() => {
        renewal = undefined;
      });
      return renewal;
    },
  };
}

function openGeneration(host: string, settings: Settings, mostSilentCloses = SILENT_CLOSES): Generation {
  const sockets = new Set<Socket>();
  const name = `branded-phone-numbers ${process.pid}.${++opened}`;
  let silentCloses = 0;
  let isCut = false;
  const { hostname, port } = new URL(host);
  const sql = postgres(host, {
    ...settings,
    connect_timeout: CONNECT_LIMIT / 1000,
    backoff: (attempts: number) => Math.min(0.025 * 2 ** attempts, LONGEST_PAUSE / 1000),
    connection: { ...settings.connection, application_name: name },
    // The driver's own sockets can't be cut from outside.
    ...(isPath(hostname) ? {} : { socket: openSocket }),
  } as Settings);

  async function openSocket(): Promise<Socket> {
    // postgres.js comes again at once when a connection is closed before it is ready.
    if ([...sockets].some(({ bytesRead }) => bytesRead > 0)) silentCloses = 0;
    if (silentCloses > 0)
      await new Promise((resolve) => setTimeout(resolve, Math.min(25 * 2 ** silentCloses, LONGEST_PAUSE)));
    const socket = new Socket();
    if (isCut) {
      // With the driver's own code, so that whoever reads knows it for a broken connection and tries again.
      const givenUp = Object.assign(new Error('the connection was given up'), { code: 'CONNECTION_DESTROYED' });
      setImmediate(() => socket.destroy(givenUp));
      return socket;
    }
    sockets.add(socket);
    socket.setNoDelay(true);
    // postgres.js takes all listeners off where it speaks TLS; this stays.
    const destroy = socket._destroy;
    socket._destroy = (error, callback) => {
      sockets.delete(socket);
      silentCloses = socket.bytesRead === 0 ? silentCloses + 1 : 0;
      // Without an error postgres.js would try again for ever, and the query for which it does would never end.
      const isHopeless = !error && silentCloses >= mostSilentCloses;
      destroy.call(socket, isHopeless ? closedAtOnce() : error, callback);
    };
    socket.connect({ host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || 5432) });
    return Object.assign(socket, { host: hostname, port: Number(port || 5432) });
  }

  return {
    sql,
    host,
    name,
    cut() {
      isCut = true;
      // Fails what waits, also for connections that are yet to be made; and says goodbye, which a destroyed socket under
      // TLS would answer with an error that nobody hears. Who does not listen is cut off.
      sql.end({ timeout: 0 }).catch(() => {});
      setTimeout(() => {
        for (const socket of sockets) socket.destroy();
      }, GOODBYE);
    },
  };
}

/** How many statements of the pool `name` the host is working on; undefined where it does not answer. */
async function probe(host: string, name: string, settings: Settings): Promise<number | undefined> {
  const generation = openGeneration(host, { ...settings, max: 1 }, 1);
  let late: NodeJS.Timeout | undefined;
  try {
    const answer = generation.sql`
      SELECT count(*)::integer AS working FROM pg_stat_activity
      WHERE application_name = ${name} AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Client'`;
    const [row] = await Promise.race([
      answer,
      new Promise<never>((_resolve, reject) => {
        late = setTimeout(() => reject(new Error('no answer')), PROBE_LIMIT);
      }),
    ]);
    return row?.working ?? 0;
  } catch {
    return undefined;
  } finally {
    clearTimeout(late);
    generation.cut();
  }
}

function closedAtOnce(): Error {
  return Object.assign(new Error('the database closes every connection at once'), { code: 'CONNECTION_CLOSED' });
}

function isPath(hostname: string): boolean {
  return hostname === '' || hostname.includes('%2F');
}
