"""redis-py against the RESP door: throttled as redis-cell would, in both protocols, and a pipeline in order."""

import sys

import redis

port, token = int(sys.argv[1]), sys.argv[2]


def expect(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


for protocol in (2, 3):
    client = redis.Redis(port=port, password=token, protocol=protocol, client_name="python", decode_responses=True)
    expect(client.ping(), True)
    expect(client.client_getname(), "python")
    key = f"python-{protocol}"
    throttle = lambda: client.execute_command("CL.THROTTLE", key, 4, 5, 36000)
    for n in range(1, 6):
        expect(throttle(), [0, 5, 5 - n, -1, 7200 * n])
    expect(throttle(), [1, 5, 0, 7200, 36000])
    expect(client.delete(key), 1)
    pipeline = client.pipeline(transaction=False)
    for _ in range(6):
        pipeline.execute_command("CL.THROTTLE", key, 4, 5, 36000)
    expect([answer[0] for answer in pipeline.execute()], [0, 0, 0, 0, 0, 1])
    try:
        client.execute_command("CL.THROTTLE", key, 4, 0, 60)
        raise AssertionError("a rate of zero passed")
    except redis.ResponseError as error:
        expect(str(error), "Cell error: Store error: Zero rates are not supported")
    checked = client.execute_command("TG.CHECK", "api", key)
    if protocol == 2:
        checked = dict(zip(checked[::2], checked[1::2]))
    expect((bool(checked["allowed"]), checked["remaining"], checked["source"]), (True, 1, "store"))
    # Maps are maps in RESP3, and lists of names and values in RESP2.
    named = lambda answer: answer if protocol == 3 else dict(zip(answer[::2], answer[1::2]))
    ask = lambda *words: named(client.execute_command(*words))
    breaker = f"python-{protocol}"
    for _ in range(2):
        acquired = ask("TG.ACQUIRE", breaker)
        expect((bool(acquired["allowed"]), acquired["state"], acquired["retry_after_ms"]), (True, "closed", None))
        told = ask("TG.REPORT", breaker, "failure", "TOKEN", acquired["token"])
        expect((bool(told["counted"]), told["why"]), (True, None))
    refused = ask("TG.ACQUIRE", breaker)
    expect((bool(refused["allowed"]), refused["state"], refused["token"]), (False, "open", None))
    assert 0 < refused["retry_after_ms"] <= 6000, refused
    expect(ask("TG.OVERRIDE", breaker, "forced_closed", 60000, "a test")["override"], "forced_closed")
    listed = [named(one) for one in ask("TG.BREAKERS", "AFTER", breaker[:-1])["breakers"]]
    expect([one["override"] for one in listed if one["id"] == breaker], ["forced_closed"])
    expect(bool(ask("TG.ACQUIRE", breaker)["allowed"]), True)
    expect(ask("TG.LIFT", breaker)["override"], None)
    try:
        ask("TG.OVERRIDE", breaker, "open", 60000, "a test")
        raise AssertionError("an unknown mode passed")
    except redis.ResponseError as error:
        expect(str(error), "mode: must be forced_open, forced_closed or metrics_only")
    expect(client.info()["redis_mode"], "standalone")
    client.close()

try:
    redis.Redis(port=port, password="wrong").ping()
    raise AssertionError("a wrong password passed")
except redis.AuthenticationError:
    pass
print("ok")
