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
    expect(client.info()["redis_mode"], "standalone")
    client.close()

try:
    redis.Redis(port=port, password="wrong").ping()
    raise AssertionError("a wrong password passed")
except redis.AuthenticationError:
    pass
print("ok")
