/** Returns the text at the end of a command's help: examples, each a complete command line. */
export function examples(...lines: string[]): string {
  return ['\nExamples:', ...lines].join('\n  ');
}
