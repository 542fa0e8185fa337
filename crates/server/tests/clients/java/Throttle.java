// Jedis against the RESP door: throttled as redis-cell would, one by one and in a pipeline.

import java.util.List;
import java.util.stream.Collectors;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisDataException;

public class Throttle {
    static final ProtocolCommand THROTTLE = () -> "CL.THROTTLE".getBytes();

    static void expect(Object found, Object expected) {
        if (!found.equals(expected)) throw new AssertionError("found " + found + ", expected " + expected);
    }

    public static void main(String[] arguments) {
        for (RedisProtocol protocol : RedisProtocol.values()) {
            var config = DefaultJedisClientConfig.builder()
                .password(arguments[1]).clientName("java").protocol(protocol).build();
            try (var client = new Jedis(new HostAndPort("127.0.0.1", Integer.parseInt(arguments[0])), config)) {
                expect(client.ping(), "PONG");
                expect(client.clientGetname(), "java");
                String key = "java-" + protocol;
                String[] words = {key, "4", "5", "36000"};
                for (long n = 1; n <= 5; n++)
                    expect(client.sendCommand(THROTTLE, words), List.of(0L, 5L, 5 - n, -1L, 7200 * n));
                expect(client.sendCommand(THROTTLE, words), List.of(1L, 5L, 0L, 7200L, 36000L));
                expect(client.del(key), 1L);
                var pipeline = client.pipelined();
                for (int n = 0; n < 6; n++) pipeline.sendCommand(THROTTLE, words);
                var limited = pipeline.syncAndReturnAll().stream()
                    .map(answer -> ((List<?>) answer).get(0)).collect(Collectors.toList());
                expect(limited, List.of(0L, 0L, 0L, 0L, 0L, 1L));
                try {
                    client.sendCommand(THROTTLE, key, "4", "0", "60");
                    throw new AssertionError("a rate of zero passed");
                } catch (JedisDataException error) {
                    expect(error.getMessage(), "Cell error: Store error: Zero rates are not supported");
                }
            }
        }
        System.out.println("ok");
    }
}
