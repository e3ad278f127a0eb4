/** The garbage collector of this process. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');

export const collectGarbage: (options?: { type: 'minor' }) => void = runInNewContext('gc');
