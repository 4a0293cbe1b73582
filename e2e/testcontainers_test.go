//go:build e2e && nightly

package e2e

import (
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// testcontainersProgram starts Redis by the library, as it comes, and speaks to it by port and by exec.
const testcontainersProgram = `
import { GenericContainer, Wait } from "testcontainers";
import net from "node:net";
const c = await new GenericContainer(process.env.REDIS_IMAGE).withExposedPorts(6379)
  .withWaitStrategy(Wait.forLogMessage("Ready to accept connections")).start();
const s = net.connect(c.getMappedPort(6379), c.getHost());
s.write("PING\r\n");
console.log("print port", String(await new Promise((r) => s.once("data", r))).trim());
s.destroy();
const e = await c.exec(["redis-cli", "ping"]);
console.log("print exec", e.exitCode, e.output.trim());
await c.stop();
`

// The real testcontainers, from npm at the time of the test, through the guard. Its
// reaper is off, because its image is on a registry.
func TestRealTestcontainers(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	registry := "https://registry.npmjs.org/"
	if r := provision.NPMRegistry(t.Context()); r != "" {
		registry = r
	}
	c := u.run("", "create", "--repo", u.repo(map[string]string{"t.mjs": testcontainersProgram, ".gitignore": "node_modules\n"}), "--task", "x", "-p", u.project(`
name: testcontainers
services:
  redis: {image: `+redisImage+`}
lifecycle:
  setup:
    - npm install --no-audit --no-fund --no-save --prefix /tmp/t testcontainers@11 && ln -s /tmp/t/node_modules node_modules
env:
  REDIS_IMAGE: `+redisImage+`
  TESTCONTAINERS_RYUK_DISABLED: "true"
  npm_config_registry: `+jsonString(t, registry)+`
harness: {name: command, command: node t.mjs}
timeout_minutes: 5
`))
	r := u.result(c.task(t))
	if got := c.printed("print"); c.code != 0 || !slices.Equal(got, []string{"port +PONG", "exec 0 PONG"}) {
		t.Errorf("exit code %d, %s by %s: %s; printed %q", c.code, r.Status, r.EndedBy, r.Reasons, got)
	}
	if len(r.Refusals) != 0 {
		t.Errorf("the guard refused %+v", r.Refusals)
	}
	if r.Status != workorder.StatusNoChanges || len(r.Refusals) > 0 {
		t.Errorf("%s", r.Status)
	}
}
