// go-redis against the RESP door: throttled as redis-cell would, one by one and in a pipeline.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/redis/go-redis/v9"
)

func expect(found, expected any) {
	if !reflect.DeepEqual(found, expected) {
		panic(fmt.Sprintf("found %#v, expected %#v", found, expected))
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	ctx := context.Background()
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:" + os.Args[1], Password: os.Args[2], Protocol: protocol, ClientName: "go",
		})
		expect(must(client.Ping(ctx).Result()), "PONG")
		expect(must(client.ClientGetName(ctx).Result()), "go")
		key := fmt.Sprintf("go-%d", protocol)
		throttle := []any{"CL.THROTTLE", key, 4, 5, 36000}
		for n := int64(1); n <= 5; n++ {
			expect(must(client.Do(ctx, throttle...).Int64Slice()), []int64{0, 5, 5 - n, -1, 7200 * n})
		}
		expect(must(client.Do(ctx, throttle...).Int64Slice()), []int64{1, 5, 0, 7200, 36000})
		expect(must(client.Del(ctx, key).Result()), int64(1))
		limited := []int64{}
		answers := must(client.Pipelined(ctx, func(pipeline redis.Pipeliner) error {
			for n := 0; n < 6; n++ {
				pipeline.Do(ctx, throttle...)
			}
			return nil
		}))
		for _, answer := range answers {
			limited = append(limited, must(answer.(*redis.Cmd).Int64Slice())[0])
		}
		expect(limited, []int64{0, 0, 0, 0, 0, 1})
		err := client.Do(ctx, "CL.THROTTLE", key, 4, 0, 60).Err()
		expect(err != nil && strings.Contains(err.Error(), "Zero rates are not supported"), true)
		if protocol == 3 {
			checked := must(client.Do(ctx, "TG.CHECK", "api", key).Result()).(map[any]any)
			expect(checked["remaining"], int64(1))
			expect(checked["allowed"], true)
		}
		client.Close()
	}
	fmt.Println("ok")
}
