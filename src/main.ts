#!/usr/bin/env node
/** The command `branded-phone-numbers`. */
import { runCommand } from './operator/commands/failure.js';
import { createProgram } from './operator/commands/program.js';
import { exit, listenForSignals } from './operator/commands/signals.js';

const signals = listenForSignals();
const signal = await runCommand(() => createProgram(signals).parseAsync());
// Abandoned work may still be running, and standard input may still be open.
if (process.exitCode) exit(signal);
// Log lines may still be queued for a reader that hangs.
setTimeout(() => process.exit(), 1000).unref();
