/** Says on standard error how far a long command is: on a terminal with a bar, otherwise with a line from time to time. */

const LINE_INTERVAL_MS = 10_000;
const BAR_INTERVAL_MS = 100;
/** In characters: bar and text fit into a narrow terminal. */
const BAR_LENGTH = 20;
/** Returns to the start of a terminal's line and clears it. */
const CLEAR_LINE = '\r\u001b[K';

/**
 * Runs `work`, and meanwhile prints `describe()` every ten seconds; on a terminal, in one line that is kept up to date, after a
 * bar for `shareOf()`, if the share that is done is known.
 */
export async function withProgress<T>(
  describe: () => string,
  work: () => Promise<T>,
  shareOf: () => number | undefined = () => undefined,
): Promise<T> {
  const { stderr } = process;
  const showBar = () => {
    const share = shareOf();
    const bar = share === undefined ? '' : `${'█'.repeat(share * BAR_LENGTH).padEnd(BAR_LENGTH, '░')} `;
    stderr.write(`${CLEAR_LINE}${bar}${describe()}`);
  };
  const timer = stderr.isTTY
    ? setInterval(showBar, BAR_INTERVAL_MS)
    : setInterval(() => console.error(describe()), LINE_INTERVAL_MS);
  try {
    return await work();
  } finally {
    clearInterval(timer);
    if (stderr.isTTY) stderr.write(CLEAR_LINE);
  }
}
