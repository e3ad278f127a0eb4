import { it } from 'vitest';
import { expectFailure, useLimited } from './output.js';

const command = useLimited();

it.each([
  ...['export', 'keys list', 'keys list --json', 'config', 'migrate'],
  ...['check', '--help', 'import --help', '--version'],
])('a command fails if standard output takes only a part of what it writes: %s', (args) =>
  expectFailure(command, args),
);
