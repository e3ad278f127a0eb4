/** An nginx with default settings that forwards `/numbers/` to a service. */
import { spawn } from 'node:child_process';
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isListening } from '../../support/port.js';
import { endProcess } from '../../support/process.js';
import { isInstalled } from '../../support/programs.js';
import { makeFolder } from '../../support/temporaryFolder.js';

export const hasNginx = isInstalled('nginx');

/**
 * Starts nginx on `port` of 127.0.0.1, in front of the service at `url`, which may name an `upstream` block; returns a function
 * that stops it.
 */
export async function startNginx(port: number, url: string, upstream = ''): Promise<() => Promise<void>> {
  const folder = await makeFolder('branded-phone-numbers-nginx-');
  // If root starts it, its workers run as another user.
  await chmod(folder, 0o755);
  const temporaryFolders = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (kind) => `${kind}_temp_path ${folder}/${kind};`,
  );
  const settings = `
    daemon off;
    pid ${folder}/pid;
    events {}
    http {
      access_log off;
      ${temporaryFolders.join(' ')}
      ${upstream}
      server {
        listen 127.0.0.1:${port};
        location /numbers/ { proxy_pass ${url}/; }
      }
    }`;
  await writeFile(join(folder, 'nginx.conf'), settings);
  const options = ['-p', folder, '-e', `${folder}/error.log`, '-c', join(folder, 'nginx.conf')];
  const child = spawn('nginx', options, { stdio: ['ignore', 'ignore', 'inherit'] });
  await isListening(port);
  return () => endProcess(child, 'SIGTERM');
}
