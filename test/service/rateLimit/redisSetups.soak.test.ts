import { it } from 'vitest';
import { useCommand } from '../../support/command.js';
import { hasRedis } from '../../support/redis.js';
import { makeFolder } from '../../support/temporaryFolder.js';
import { expectTrust, startTls } from './redisTls.js';

const command = useCommand();

it.skipIf(!hasRedis)('the service starts if NODE_EXTRA_CA_CERTS has the authority of sentinels', async () => {
  const { ca, startSentinel } = await startTls(await makeFolder('branded-phone-numbers-redis-'));
  await expectTrust(command, await startSentinel(), ca);
});
