// rate-limiter-flexible on ioredis, asked as crates/bench/src/redis/peers.rs says.
const fs = require("node:fs");
const { Redis } = require("ioredis");
const { RateLimiterRedis, RateLimiterRes } = require("rate-limiter-flexible");

const [port, keys, limit, period, together, lead, span] = process.argv.slice(3, 10).map(Number);
const signal = process.argv[10];

async function main() {
  const client = new Redis({ port, maxRetriesPerRequest: 1 });
  const limiter = new RateLimiterRedis({ storeClient: client, points: limit, duration: period });
  await client.ping();
  console.log("ready");
  while (!fs.existsSync(signal)) await new Promise((go) => setTimeout(go, 2));
  const from = performance.now() + lead;
  const until = from + span;
  let asked = 0, admitted = 0;
  async function ask() {
    for (;;) {
      let isAllowed = true;
      try {
        await limiter.consume(`user:${Math.floor(Math.random() * keys)}`);
      } catch (refusal) {
        if (!(refusal instanceof RateLimiterRes)) throw refusal;
        isAllowed = false;
      }
      const now = performance.now();
      if (now > until) return;
      if (now > from) {
        asked += 1;
        admitted += isAllowed ? 1 : 0;
      }
    }
  }
  await Promise.all(Array.from({ length: together }, ask));
  console.log("done", asked, admitted);
  await client.quit();
}

main().catch((error) => { console.error(error); process.exit(1); });
