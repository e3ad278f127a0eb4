/** What `--help` of each command shows, and what a command prints if its arguments are wrong. */
import { describe, expect, it } from 'vitest';
import { runProgram as run } from '../../support/command.js';

const KEYS = ['keys create', 'keys list', 'keys revoke'];
const COMMANDS = ['serve', 'migrate', 'import', 'export', 'delete', 'check', 'config', ...KEYS];

/** Returns the commands that the help of `name` lists. */
async function listedBy(name: string): Promise<string[]> {
  const { stdout } = await run([...name.split(' ').filter(Boolean), '--help']);
  const [, list = ''] = stdout.split('Commands:\n');
  return [...list.matchAll(/^ {2}(\w+)/gm)].map(([, command = '']) => `${name} ${command}`.trim());
}

describe('the help', () => {
  it('lists every command', async () => {
    const listed = [...(await listedBy('')), ...(await listedBy('keys'))];
    expect(listed.filter((name) => !/help$|^keys$/.test(name)).sort()).toEqual([...COMMANDS].sort());
  });

  it.each(COMMANDS)('of %s has examples with valid options', async (name) => {
    const { code, stdout } = await run([...name.split(' '), '--help']);
    const [description = '', examples = ''] = stdout.split('\nExamples:\n');
    expect(code).toBe(0);
    const [, ...argumentsOfExamples] = examples.split(`branded-phone-numbers ${name}`);
    expect(argumentsOfExamples).not.toEqual([]);
    for (const line of argumentsOfExamples) {
      const [args = ''] = line.split(/[|\n]/);
      for (const [option] of args.matchAll(/(?<= )--[a-z-]+/g)) {
        expect(description.split(/[ ,]+/)).toContain(option);
      }
    }
  });
});

describe('wrong arguments are reported in one line, followed by one that names the help:', () => {
  it.each([
    ['', 'imprt numbers.ndjson', "error: unknown command 'imprt'"],
    ['import', 'import', "error: missing required argument 'file'"],
    ['import', 'import --alow-empty x', "error: unknown option '--alow-empty'"],
    ['keys create', 'keys create', "error: required option '--name <name>' not specified"],
    ['keys create', 'keys create --name x --expires soon', "option '--expires <when>' argument 'soon' is invalid"],
    ['keys', 'keys crate', "error: unknown command 'crate'"],
  ])('%s: %s', async (name, args, reason) => {
    const { code, stdout, stderr } = await run(args.split(' '));
    const lines = stderr.trimEnd().split('\n');
    expect([code, stdout, lines[0]]).toEqual([1, '', expect.stringContaining(reason)]);
    expect(lines.at(-1)).toBe(`see ${['branded-phone-numbers', ...name.split(' ').filter(Boolean)].join(' ')} --help`);
    expect(lines.filter((line) => !line.startsWith('(Did you mean'))).toHaveLength(2);
  });
});
