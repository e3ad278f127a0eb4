/** `keys`: creates, lists and revokes API keys. */
import { InvalidArgumentError } from 'commander';
import type { Connection } from '../../database/connection.js';
import type { ApiKey } from '../../keys/keys.js';
import { UserError } from '../../userError.js';
import { inUtc, isTime } from '../numbers/time.js';
import type { CommandWithExamples } from './command.js';
import { withDatabase } from './database.js';
import { isDiscarded, report, write } from './output.js';
import type { Signals } from './signals.js';

/** The longest wait for a lock, in ms. Statements have no time limit: a commit may wait for a standby for as long as it is away. */
const LIMITS = { lockTimeout: 4000 };

export function addKeys(program: CommandWithExamples, signals: Signals): void {
  const keys = program.command('keys').description('create, list and revoke API keys, which AUTH=api-key requires');
  const withKeys = async (use: (connection: Connection) => Promise<void>, access = {}) => {
    const { watchingWaits } = await import('../../database/blockers.js');
    const { withConnection } = await import('../../database/connection.js');
    await withDatabase(signals, (url) => watchingWaits(url, {}, () => withConnection(url, use, LIMITS)), access);
  };

  keys
    .command('create')
    .description('create a key and print it to standard output; it is never shown again')
    .requiredOption('--name <name>', 'the name of its owner')
    .option(
      '--business-profile <uuid>',
      'limit the key to the numbers of this business profile; repeatable',
      collectUuids,
    )
    .option(
      '--expires <when>',
      'a time such as 2027-01-31T00:00:00Z, a date (midnight UTC), or days or hours from now: 90d, 12h',
      parseTime,
    )
    .option('--json', 'print the key and its stored fields as one line of JSON')
    .examples(
      "branded-phone-numbers keys create --name 'Circle Bank' --expires 90d",
      "branded-phone-numbers keys create --name 'Fjord Travel' --business-profile 5d9dc9f8-1818-4811-892f-902bd23f0824",
    )
    .action((options: CreateOptions) => withKeys((connection) => create(connection, options)));

  keys
    .command('list')
    .description('list all keys, including expired and revoked ones; the keys themselves are not stored')
    .option('--all', 'also show which role of PostgreSQL created and revoked each key')
    .option('--json', 'print one line of JSON per key, with all of that')
    .examples(
      'branded-phone-numbers keys list',
      'branded-phone-numbers keys list --all',
      `branded-phone-numbers keys list --json | jq -r 'select(.state == "active") | .name'`,
    )
    .action(({ all = false, json }: { all?: boolean; json?: true }) =>
      withKeys(
        async (connection) => {
          const { listApiKeys } = await import('../../keys/keys.js');
          const list = await connection.run(listApiKeys);
          for (const { id, name, expiresAt } of list.filter((key) => key.expiresSoon)) {
            console.error(`the key ${id} (${name}) expires at ${expiresAt}; create another one and hand it over`);
          }
          if (json) await write(list.map(({ expiresSoon, ...key }) => `${JSON.stringify(key)}\n`).join(''));
          else if (list.length > 0) await write(tableOf(list, all));
          else console.error('there are no keys');
        },
        { isReader: true },
      ),
    );

  keys
    .command('revoke')
    .description('revoke keys, which stop working within 5 seconds')
    .argument('<id...>', 'ids shown by keys list', collectUuids)
    .examples('branded-phone-numbers keys revoke 5d9dc9f8-1818-4811-892f-902bd23f0824')
    .action((ids: string[]) =>
      withKeys(async (connection) => {
        const { revokeApiKeys } = await import('../../keys/keys.js');
        const active = await connection.run((database) => revokeApiKeys(database, ids));
        const revoked = ids.filter((id) => active.includes(id));
        const others = ids.filter((id) => !active.includes(id));
        for (const id of others) console.error(`no active key has the id ${id}`);
        if (others.length > 0) process.exitCode = 1;
        if (revoked.length > 0) await report(revoked.map((id) => `revoked ${id}`).join('\n'));
      }),
    );
}

interface CreateOptions {
  name: string;
  businessProfile?: string[];
  expires?: Date;
  json?: true;
}

/** Creates a key and prints it. Revokes it if it can't be printed, because a key is shown only once. */
async function create(connection: Connection, { name, businessProfile, expires, json }: CreateOptions): Promise<void> {
  if (isDiscarded()) throw new UserError('standard output is closed or discarded, and a key is shown only once');
  const { createApiKey, revokeApiKeys, unknownProfiles } = await import('../../keys/keys.js');
  for (const id of await connection.run((database) => unknownProfiles(database, businessProfile ?? []))) {
    // Not an error: the key may be created before the profile's first import.
    console.error(`business profile ${id} does not exist yet; the key will see its numbers once it does`);
  }
  const limits = { businessProfileIds: businessProfile ?? null, expiresAt: expires ?? null };
  const { key, created } = await connection.run((database) => createApiKey(database, name, limits));
  const expiry = created.expiresAt === null ? '' : `, which expires at ${created.expiresAt}`;
  if (!json) console.error(`created a key with the id ${created.id}${expiry}; save it now, as it is never shown again`);
  try {
    await write(`${json ? JSON.stringify({ key, ...created }) : key}\n`);
  } catch (error) {
    await connection.run((database) => revokeApiKeys(database, [created.id]));
    throw error;
  }
}

/** Returns a table of the keys, one per line, with a header. The name is last because its length varies most. */
function tableOf(list: readonly ApiKey[], withRoles: boolean): string {
  const rows = list.map((key) => ({
    ID: key.id,
    STATE: key.state,
    CREATED: key.createdAt,
    ...(withRoles && { 'CREATED BY': key.createdBy ?? '-' }),
    EXPIRES: key.expiresAt ?? 'never',
    REVOKED: key.revokedAt ?? '-',
    ...(withRoles && { 'REVOKED BY': key.revokedBy ?? '-' }),
    'LAST USED': key.lastUsedOn ?? 'never',
    PROFILES: `${key.businessProfileIds?.length ?? 'all'}`,
    NAME: key.name,
  }));
  const header = Object.keys(rows[0] ?? {});
  const table = [header, ...rows.map((row) => Object.values(row))];
  const widths = header.map((_name, column) => Math.max(...table.map((row) => row[column]?.length ?? 0)));
  const lineOf = (row: string[]) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ');
  return table.map((row) => `${lineOf(row).trimEnd()}\n`).join('');
}

function collectUuids(value: string, previous: string[] | undefined): string[] {
  if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(value)) throw new InvalidArgumentError('It must be a UUID.');
  return [...(previous ?? []), value.toLowerCase()];
}

const HOUR_MS = 60 * 60 * 1000;

/** Parses a time, a date, or a duration from now. The database rejects a past time. */
function parseTime(text: string): Date {
  const [, count, unit] = /^([1-9][0-9]{0,4})([hd])$/.exec(text) ?? [];
  if (count) return new Date(Date.now() + Number(count) * (unit === 'd' ? 24 : 1) * HOUR_MS);
  const time = /^[-\d]{10}$/.test(text) ? `${text}T00:00:00Z` : text;
  if (!isTime(time)) {
    throw new InvalidArgumentError(
      'It must be a time of the years 1 to 9999 such as 2027-01-31T00:00:00Z, a date, or days or hours: 90d, 12h.',
    );
  }
  return new Date(inUtc(time));
}
