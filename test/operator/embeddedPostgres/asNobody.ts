/** Runs a command as nobody with the right to read every file, since other users may not be able to read the checkout. */
export const AS_NOBODY = [
  ...['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', '--securebits=+no_setuid_fixup'],
  ...['--inh-caps=-all,+dac_read_search', '--ambient-caps=-all,+dac_read_search'],
];

export const isRoot = process.getuid?.() === 0;
