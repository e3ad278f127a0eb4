/** The files of deploy/, in which only addresses, ports and folders are replaced for this machine. */
import { readFile, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { packageFolder } from '../../src/packageFolder.js';

/** Copies a file of deploy/ into a folder, with `network` (such as `127.7`) instead of 10.0 and 127.0; returns its path. */
export async function place(path: string, network: string, folder: string): Promise<string> {
  const text = (await readFile(join(packageFolder, 'deploy', path), 'utf8'))
    // In one pass, since `127.110.0.1` has a `10.0.` itself.
    .replaceAll(/127\.0\.(?=0\.1)|10\.0\./g, `${network}.`)
    .replaceAll(' :::443 v4v6', ` ${network}.0.1:8443`)
    .replaceAll(/ (\[::\]:)?443 /g, (_, isIpv6) => ` ${network}.0.${isIpv6 ? 2 : 1}:8443 `)
    .replaceAll(/\/etc\/(haproxy|nginx|pgbouncer)|\/run\/postgresql/g, folder)
    // Only root may switch to another user.
    .replaceAll(/^ {2}(user|group) .*$/gm, process.getuid?.() === 0 ? '$&' : '');
  const file = join(folder, basename(path));
  await writeFile(file, text);
  return file;
}
