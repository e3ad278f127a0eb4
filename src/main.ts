#!/usr/bin/env node
/** The command `branded-phone-numbers`. */
import { runToItsEnd } from './commands/failure.js';
import { createProgram } from './commands/program.js';
import { listenForSignals } from './commands/stop.js';

listenForSignals();
await runToItsEnd(() => createProgram().parseAsync());
// What was stopped may still be running, and standard input may still be waited for.
if (process.exitCode) process.exit();
// So may lines of the log for a reader that hangs.
setTimeout(() => process.exit(), 1000).unref();
