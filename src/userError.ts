/**
 * An error that a user of a command or an operator of the service can fix. Its message says what is wrong and what to
 * do, one line for each fault. A command prints only the message, without a stack.
 */
export class UserError extends Error {}

/** A change that ended while it wrote. What is written stays. The cause says why it ended. */
export class Unfinished extends Error {}
