/** What a user of a command or an operator of the service can put right. */

/** The message says what is wrong and what to do, a line for each thing; a command prints it and nothing else. */
export class UserError extends Error {}
