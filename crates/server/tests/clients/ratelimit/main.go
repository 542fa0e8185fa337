// envoyproxy/ratelimit itself, built from its module: the test asks it and Tollgate the same.
package main

import "github.com/envoyproxy/ratelimit/src/service_cmd/runner"
import "github.com/envoyproxy/ratelimit/src/settings"

func main() {
	service := runner.NewRunner(settings.NewSettings())
	service.Run()
}
