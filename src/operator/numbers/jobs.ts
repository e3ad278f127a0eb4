/** How many connections write at once. */

/** On two cores, the fastest that does not slow down other programs. */
export const DEFAULT_JOBS = 2;

/** More would take connections that other programs need. */
export const MAX_JOBS = 32;
