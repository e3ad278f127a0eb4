#!/usr/bin/env node
/** The command `branded-phone-numbers`. */
import { runCommand } from './operator/commands/failure.js';
import { createProgram } from './operator/commands/program.js';
import { listenForSignals } from './operator/commands/stop.js';

const stop = listenForSignals();
await runCommand(() => createProgram(stop).parseAsync());
// Abandoned work may still be running, and standard input may still be open.
if (process.exitCode) process.exit();
// Log lines may still be queued for a reader that hangs.
setTimeout(() => process.exit(), 1000).unref();
