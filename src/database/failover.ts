/**
 * Failover: connections to PostgreSQL that can be replaced by new ones, to the same host or another. postgres.js waits
 * forever on a connection that was cut silently, and reconnects without a pause where a connection is accepted and
 * closed again. So the client here can be replaced without its users noticing: `failover` pings the hosts on fresh
 * connections, replaces the client, and cuts the connections of the old one, which fails the statements that wait on them.
 */
import { Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import postgres, { type Options, type Sql } from 'postgres';
import { withDeadline } from '../deadline.js';
import { codeOf, TOO_MANY_CONNECTIONS } from './errors.js';
import { type Connection, connectionOf, hostsOf } from './url.js';

/** Milliseconds for a connection to be made, and for a ping, which includes its connection. */
const CONNECT_TIMEOUT_MS = 1500;
const PING_TIMEOUT_MS = 1000;
/** The longest delay between attempts to open a connection, after failures. */
const MAX_RECONNECT_DELAY_MS = 500;
/** How long the connections of a replaced client may take to close by themselves. */
const CLOSE_TIMEOUT_MS = 200;
/** Connections in a row that were closed before they sent a byte, after which a query that waits for one fails. */
const MAX_SILENT_CLOSES = 3;

/** A server's answer to the wish for TLS: N. */
const NO_TLS = 0x4e;

type Settings = Options<Record<string, postgres.PostgresType>>;
/** A host, as it is in the pool's address, and what that says of the connections to it. */
type Host = Connection & { url: string };

/** One postgres.js client and the sockets it has open. */
interface Client {
  sql: Sql;
  host: Host;
  name: string;
  cut(): void;
}

/** What the callers know about the statements on the connections. */
interface Need {
  /** Statements that were sent before the check and are not answered yet. */
  waiting: number;
  /** There are some, and none has been answered lately. */
  isSilent: boolean;
}

export interface Pool {
  /** Always the current client. What runs on it when it is replaced fails with a connection error. */
  client: Sql;
  /**
   * Pings the hosts on fresh connections, and moves to one that answers if need be. The connections are replaced if that
   * is another host; if the one in use works on less than half of the statements that we wait for; and if neither a host
   * nor the connections answer, unless the host in use has no new connection to give. `need` is asked once the pings are
   * over: what was answered meanwhile was only slow.
   * Resolves to whether any host answers.
   */
  failover(need: () => Need): Promise<boolean>;
}

let opened = 0;

/** Opens a pool on `url`, of one or several hosts; nothing is sent before the first query. */
export function openPool(url: string, settings: Settings, onFailover: () => void): Pool {
  const hosts: Host[] = hostsOf(url).map((host) => ({ url: host, ...connectionOf(host) }));
  let current = openClient(hosts[0] as Host, settings);
  let running: Promise<boolean> | undefined;
  let ended = false;

  async function failover(need: () => Need): Promise<boolean> {
    const answers = await Promise.all(hosts.map((host) => ping(host, current.name, settings)));
    // Answers that came together with those of the pings are read first.
    await nextTurn();
    if (ended) return false;
    const { waiting, isSilent } = need();
    // The one in use stays in use while it answers; it may have been promoted while the first was away.
    const inUse = hosts.indexOf(current.host);
    const next = isNumber(answers[inUse]) ? inUse : answers.findIndex(isNumber);
    const host = hosts[next];
    if (host === undefined) {
      // A host without a free connection could not replace those that we have.
      if (isSilent && answers[inUse] !== 'full') replace(current.host);
      return false;
    }
    const isStuck = 2 * Number(answers[next]) < Math.min(waiting, Number(settings.max));
    if (next !== inUse || isStuck) {
      replace(host);
      onFailover();
    }
    return true;
  }

  function replace(host: Host): void {
    const old = current;
    current = openClient(host, settings);
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
    failover(need) {
      running ??= failover(need).finally(() => {
        running = undefined;
      });
      return running;
    },
  };
}

function openClient(host: Host, settings: Settings, maxSilentCloses = MAX_SILENT_CLOSES): Client {
  const sockets = new Set<Socket>();
  const name = `${host.applicationName} ${process.pid}.${++opened}`;
  let silentCloses = 0;
  let isCut = false;
  const { connection, ...options } = host.options as Settings;
  const sql = postgres({
    ...settings,
    ...options,
    connect_timeout: CONNECT_TIMEOUT_MS / 1000,
    backoff: (attempts: number) => Math.min(0.025 * 2 ** attempts, MAX_RECONNECT_DELAY_MS / 1000),
    connection: { ...settings.connection, ...connection, application_name: name },
    // The driver's own sockets can't be cut from outside.
    socket: openSocket,
  } as Settings);

  async function openSocket(): Promise<Socket> {
    // postgres.js reconnects at once when a connection is closed before it is ready.
    if ([...sockets].some(({ bytesRead }) => bytesRead > 0)) silentCloses = 0;
    if (silentCloses > 0)
      await new Promise((resolve) => setTimeout(resolve, Math.min(25 * 2 ** silentCloses, MAX_RECONNECT_DELAY_MS)));
    const socket = new Socket();
    if (isCut) {
      // With the driver's own code, by which a read recognizes a broken connection and tries again.
      const replaced = Object.assign(new Error('the connection was replaced'), { code: 'CONNECTION_DESTROYED' });
      setImmediate(() => socket.destroy(replaced));
      return socket;
    }
    sockets.add(socket);
    socket.setNoDelay(true);
    // postgres.js would begin TLS all the same.
    if (typeof options.ssl === 'object') {
      socket.once('data', ([answer]: Buffer) => {
        if (answer === NO_TLS) socket.destroy(withoutTls(host));
      });
    }
    // For TLS, postgres.js removes all listeners of the socket; an overridden method stays.
    const destroy = socket._destroy;
    socket._destroy = (error, callback) => {
      sockets.delete(socket);
      silentCloses = socket.bytesRead === 0 ? silentCloses + 1 : 0;
      // Without an error, postgres.js would retry forever, and the query that it retries for would never end.
      const isHopeless = !error && silentCloses >= maxSilentCloses;
      destroy.call(socket, isHopeless ? closedAtOnce() : error, callback);
    };
    socket.connect(host.place);
    return Object.assign(socket, { host: host.hostname });
  }

  return {
    sql,
    host,
    name,
    cut() {
      isCut = true;
      // Fails what waits, also for connections that are yet to be made; and ends the connections in order, since a
      // socket destroyed under TLS would emit an error that nobody handles. What does not end in time is destroyed.
      sql.end({ timeout: 0 }).catch(() => {});
      setTimeout(() => {
        for (const socket of sockets) socket.destroy();
      }, CLOSE_TIMEOUT_MS);
    },
  };
}

/**
 * How many statements of the pool `name` the host is working on; 'full' where it has no connection left, and undefined
 * where it does not answer.
 */
async function ping(host: Host, name: string, settings: Settings): Promise<number | 'full' | undefined> {
  const client = openClient(host, { ...settings, max: 1 }, 1);
  const answer = client.sql`
    SELECT count(*)::integer AS working FROM pg_stat_activity
    WHERE application_name = ${name} AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Client'`;
  try {
    const [row] = await withDeadline(answer, PING_TIMEOUT_MS, () => new Error('no answer'));
    return row?.working ?? 0;
  } catch (error) {
    return codeOf(error) === TOO_MANY_CONNECTIONS ? 'full' : undefined;
  } finally {
    client.cut();
  }
}

function isNumber(answer: unknown): boolean {
  return typeof answer === 'number';
}

function closedAtOnce(): Error {
  return Object.assign(new Error('the database closes every connection at once'), { code: 'CONNECTION_CLOSED' });
}

function withoutTls({ hostname }: Host): Error {
  const message = `PostgreSQL at ${hostname} offers no TLS, which sslmode in DATABASE_URL asks for`;
  return Object.assign(new Error(message), { code: 'TLS_NOT_OFFERED' });
}
