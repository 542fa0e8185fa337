// go-redis/redis_rate, asked as crates/bench/src/redis/peers.rs says.
package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

func main() {
	number := func(at int) int {
		value, err := strconv.Atoi(os.Args[at])
		if err != nil {
			panic(err)
		}
		return value
	}
	port, keys, limit, period := number(2), number(3), number(4), number(5)
	together, lead, span, signal := number(6), number(7), number(8), os.Args[9]
	client := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", port)})
	limiter := redis_rate.NewLimiter(client)
	rate := redis_rate.Limit{Rate: limit, Burst: limit, Period: time.Duration(period) * time.Second}
	background := context.Background()
	if err := client.Ping(background).Err(); err != nil {
		panic(err)
	}
	fmt.Println("ready")
	for {
		if _, err := os.Stat(signal); err == nil {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	from := time.Now().Add(time.Duration(lead) * time.Millisecond)
	until := from.Add(time.Duration(span) * time.Millisecond)
	var asked, admitted atomic.Int64
	done := make(chan error)
	for range together {
		go func() {
			for {
				answer, err := limiter.Allow(background, fmt.Sprintf("user:%d", rand.Intn(keys)), rate)
				if err != nil {
					done <- err
					return
				}
				now := time.Now()
				if now.After(until) {
					done <- nil
					return
				}
				if now.After(from) {
					asked.Add(1)
					admitted.Add(int64(answer.Allowed))
				}
			}
		}()
	}
	for range together {
		if err := <-done; err != nil {
			panic(err)
		}
	}
	fmt.Println("done", asked.Load(), admitted.Load())
}
