"""limits on redis-py, asked as crates/bench/src/redis/peers.rs says; its first word is the strategy."""

import os
import random
import sys
import threading
import time

from limits import RateLimitItemPerSecond
from limits.storage import RedisStorage
from limits.strategies import STRATEGIES

strategy, signal = sys.argv[1], sys.argv[9]
port, keys, limit, period, together, lead, span = map(int, sys.argv[2:9])
limiter = STRATEGIES[strategy](RedisStorage(f"redis://127.0.0.1:{port}"))
item = RateLimitItemPerSecond(limit, period)
limiter.test(item, "warm")
print("ready", flush=True)
while not os.path.exists(signal):
    time.sleep(0.002)
start = time.monotonic() + lead / 1000
end = start + span / 1000
counts = []


def ask():
    asked = admitted = 0
    while True:
        is_allowed = limiter.hit(item, f"user:{random.randrange(keys)}")
        now = time.monotonic()
        if now > end:
            break
        if now > start:
            asked += 1
            admitted += is_allowed
    counts.append((asked, admitted))


threads = [threading.Thread(target=ask) for _ in range(together)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(counts) == together, "a thread fell"
print("done", sum(asked for asked, _ in counts), sum(admitted for _, admitted in counts), flush=True)
