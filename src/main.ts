#!/usr/bin/env node
/** The command `branded-phone-numbers`. */
import { join } from 'node:path';
import { Presets, SingleBar } from 'cli-progress';
import { Command, InvalidArgumentError } from 'commander';
import { DrizzleQueryError } from 'drizzle-orm';
import { createApiKey, listApiKeys, revokeApiKey } from './apiKeys.js';
import { type Config, ConfigError, readConfig } from './config.js';
import { contract, packageFolder } from './contract.js';
import { closeDatabase, type Database, migrateDatabase, openDatabase } from './database.js';
import { openEmbeddedPostgres } from './embeddedPostgres.js';
import { ImportError, importNumbers } from './import.js';
import { openInputFiles } from './inputFiles.js';
import { openLog } from './log.js';
import { brandedPhoneNumbers } from './schema.js';
import { startService } from './server.js';

const program = new Command('branded-phone-numbers')
  .description(contract.info.summary)
  .version(contract.info.version)
  .showHelpAfterError();

program
  .command('serve')
  .description('serve the API, its documentation at /docs and its health at /healthz and /readyz')
  .option('--demo', 'import a hundred numbers first, if there are none')
  .action(async ({ demo }: { demo?: true }) => {
    const config = readConfig(process.env);
    await withDatabaseUrl(config, async (url) => {
      if (demo) await withDatabase(url, importDemo);
      const log = openLog(config);
      const service = await startService(config, url, log);
      log.info(`listening on ${service.url}, documentation at ${service.url}/docs`);
      const signal = await nextSignal();
      log.info(`${signal}: closing`);
      // Whoever sits before a terminal need not wait for balancers to notice.
      await service.close(signal === 'SIGTERM' ? config.DRAIN_SECONDS : 0);
    });
  });

program
  .command('migrate')
  .description('bring the database up to date')
  .action(() => withDatabaseUrl(readConfig(process.env), async () => console.log('the database is up to date')));

program
  .command('import')
  .description('import numbers from NDJSON files, an item of the API a line; all lines or none')
  .argument('<file...>', 'the files; - is standard input')
  .action((files: string[]) =>
    withDatabaseUrl(readConfig(process.env), (url) => withDatabase(url, (database) => importFiles(database, files))),
  );

const keys = program.command('keys').description('make, list and revoke API keys, which AUTH=api-key asks for');

keys
  .command('create')
  .description('make a key and show it, once, on standard output')
  .requiredOption('--name <name>', 'whose key it is')
  .option(
    '--business-profile <uuid>',
    'let the key see only the numbers of this business profile; repeatable',
    collectUuids,
  )
  .action(({ name, businessProfile = null }: { name: string; businessProfile?: string[] | null }) =>
    withConfiguredDatabase(async (database) => {
      const { key, id } = await createApiKey(database, name, businessProfile);
      console.error(`The key ${id} can't be shown again:`);
      console.log(key);
    }),
  );

keys
  .command('list')
  .description('list all keys, a line of JSON each; the keys themselves are not kept')
  .action(() =>
    withConfiguredDatabase(async (database) => {
      for (const key of await listApiKeys(database)) console.log(JSON.stringify(key));
    }),
  );

keys
  .command('revoke')
  .description('revoke keys; they stop working within 5 seconds')
  .argument('<id...>', 'as listed', collectUuids)
  .action((ids: string[]) =>
    withConfiguredDatabase(async (database) => {
      for (const id of ids) {
        if (await revokeApiKey(database, id)) console.log(`revoked ${id}`);
        else {
          console.error(`there is no key ${id} that could be revoked`);
          process.exitCode = 1;
        }
      }
    }),
  );

function collectUuids(value: string, earlier: string[] | undefined): string[] {
  if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(value)) throw new InvalidArgumentError('It must be a UUID.');
  return [...(earlier ?? []), value.toLowerCase()];
}

async function importFiles(database: Database, names: string[]): Promise<void> {
  const files = await openInputFiles(names);
  const bar = new SingleBar({ format: '{bar} {percentage}%  {lines} lines', stream: process.stderr }, Presets.rect);
  // Only a terminal shows a bar, and only a known size can be shown a part of.
  const isShown = process.stderr.isTTY && files.size !== undefined;
  if (isShown) bar.start(files.size ?? 0, 0, { lines: 0 });
  try {
    const { numbers, carrierStatuses } = await importNumbers(database, files.stream, {
      onProgress: ({ bytes, lines }) => isShown && bar.update(bytes, { lines }),
    });
    bar.stop();
    console.log(`imported ${numbers} numbers, ${carrierStatuses} carrier statuses`);
  } catch (error) {
    bar.stop();
    if (!(error instanceof ImportError)) throw error;
    const inPlace = (reason: string) => reason.replace(/\bline (\d+)/g, (_line, number) => files.place(Number(number)));
    for (const { line, reason } of error.faults) console.error(`${files.place(line)}: ${inPlace(reason)}`);
    process.exitCode = 1;
  }
}

async function importDemo(database: Database): Promise<void> {
  const [any] = await database.select().from(brandedPhoneNumbers).limit(1);
  if (!any) await importFiles(database, [join(packageFolder, 'demo', 'numbers.ndjson')]);
}

/** Lends the address of a migrated database: DATABASE_URL, or an embedded one that runs as long as it is needed. */
async function withDatabaseUrl(config: Config, use: (url: string) => Promise<void>): Promise<void> {
  const embedded = config.DATABASE_URL === undefined ? await openEmbeddedPostgres('.data') : undefined;
  try {
    const url = config.DATABASE_URL ?? embedded?.url ?? '';
    await migrateDatabase(url);
    await use(url);
  } finally {
    await embedded?.close();
  }
}

async function withDatabase(url: string, use: (database: Database) => Promise<void>): Promise<void> {
  const database = openDatabase(url);
  try {
    await use(database);
  } finally {
    await closeDatabase(database);
  }
}

function withConfiguredDatabase(use: (database: Database) => Promise<void>): Promise<void> {
  return withDatabaseUrl(readConfig(process.env), (url) => withDatabase(url, use));
}

function nextSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, resolve);
  });
}

try {
  await program.parseAsync();
} catch (error) {
  console.error(explain(error));
  process.exitCode = 1;
}

/** What a person needs of an error: its message where the world is at fault, all of it where we are. */
function explain(error: unknown): unknown {
  if (error instanceof ConfigError) return error.message;
  if (error instanceof DrizzleQueryError) return explain(error.cause);
  // Errors of the system and of PostgreSQL have a code; programming errors have none.
  if (error instanceof AggregateError) return error.errors.map(explain).join('\n');
  return error instanceof Error && 'code' in error ? error.message : error;
}
