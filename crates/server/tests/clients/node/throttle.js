// ioredis against the RESP door: throttled as redis-cell would, one by one and in a pipeline.
const assert = require("node:assert/strict");
const { Redis } = require("ioredis");

const [port, token] = [Number(process.argv[2]), process.argv[3]];

async function main() {
  const client = new Redis({ port, password: token, connectionName: "node", maxRetriesPerRequest: 1 });
  assert.equal(await client.ping(), "PONG");
  assert.equal(await client.client("GETNAME"), "node");
  const throttle = () => client.call("CL.THROTTLE", "node", 4, 5, 36000);
  for (let n = 1; n <= 5; n++) assert.deepEqual(await throttle(), [0, 5, 5 - n, -1, 7200 * n]);
  assert.deepEqual(await throttle(), [1, 5, 0, 7200, 36000]);
  assert.equal(await client.del("node"), 1);
  const pipeline = client.pipeline();
  for (let n = 0; n < 6; n++) pipeline.call("CL.THROTTLE", "node", 4, 5, 36000);
  const limited = (await pipeline.exec()).map(([error, answer]) => { assert.equal(error, null); return answer[0]; });
  assert.deepEqual(limited, [0, 0, 0, 0, 0, 1]);
  await assert.rejects(client.call("CL.THROTTLE", "node", 4, 0, 60), /Zero rates are not supported/);
  const checked = await client.call("TG.CHECK", "api", "node");
  const remaining = Array.isArray(checked) ? checked[checked.indexOf("remaining") + 1] : checked.remaining ?? checked.get("remaining");
  assert.equal(remaining, 1);
  await client.quit();
  console.log("ok");
}

main().catch((error) => { console.error(error); process.exit(1); });
