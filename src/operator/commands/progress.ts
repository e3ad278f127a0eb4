/** Says on standard error how far a long command is: on a terminal with a bar, otherwise with a line from time to time. */

const LINE_INTERVAL_MS = 10_000;
const BAR_INTERVAL_MS = 100;
/** In characters: bar and text fit into a narrow terminal. */
const BAR_LENGTH = 20;
/** Returns to the start of a terminal's line and clears it. */
const CLEAR_LINE = '\r\u001b[K';

export interface State {
  text: string;
  /** The share that is done, if it is known. It may be more than 1, since files grow. */
  share?: number;
  /** Whether a user types the input now. */
  isTyped?: boolean;
}

/**
 * Runs `work`, and meanwhile prints the text of `look()` every ten seconds; on a terminal, in one line that is kept up to date,
 * after a bar for its share, unless a user types there. Any other message clears that line first, also if `work` was abandoned.
 */
export async function withProgress<T>(look: () => State, work: () => Promise<T>): Promise<T> {
  const { stderr } = process;
  const write = stderr.write.bind(stderr);
  const showBar = () => {
    const { text, share, isTyped } = look();
    if (isTyped) return;
    const filled = '█'.repeat(Math.min(share ?? 0, 1) * BAR_LENGTH);
    const bar = share === undefined ? '' : `${filled.padEnd(BAR_LENGTH, '░')} `;
    write(`${CLEAR_LINE}${bar}${text}`);
  };
  if (stderr.isTTY) stderr.write = (text: Uint8Array | string, ...rest: []) => write(`${CLEAR_LINE}${text}`, ...rest);
  const timer = stderr.isTTY
    ? setInterval(showBar, BAR_INTERVAL_MS)
    : setInterval(() => console.error(look().text), LINE_INTERVAL_MS);
  try {
    return await work();
  } finally {
    clearInterval(timer);
    stderr.write = write;
    if (stderr.isTTY) write(CLEAR_LINE);
  }
}
