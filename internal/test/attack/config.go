package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Config is what the attacker has to know of its surroundings.
type Config struct {
	Mode string `json:"mode"` // full, restricted or none
	// Host is the address of the servers outside; names lead there as well.
	Host string `json:"host"`
	// Canary is the beginning of every secret of the run, reversed: the attacker itself
	// must not hold what it looks for.
	Canary string `json:"canary_reversed"`
	// Origin is the remote's URL, Pushed the branch that must stay as it is.
	Origin string `json:"origin"`
	// ModelURL is the model's own server, which the gateway stands before.
	ModelURL string `json:"model_url"`
	// PIDs is the project's limit of processes.
	PIDs int `json:"pids"`
}

// The names of the outside and what the project allows of them: allowed.test, the
// subdomains of wild.test, ssh.test at port 2222, and port.test at port 8443.
const (
	allowedName = "allowed.test"
	wildName    = "x.wild.test"
	sshName     = "ssh.test"
	portName    = "port.test" // at port 8443
	deniedName  = "denied.test"
	// Both are allowed by *.wild.test; their addresses are always blocked.
	rebindName = "rebind.wild.test" // 169.254.169.254
	loopName   = "loop.wild.test"   // 127.0.0.1
)

func load(path string) (*Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var c Config
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &c, nil
}

// canary is the pattern, made when it is needed.
func (c *Config) canary() []byte {
	var b strings.Builder
	for i := len(c.Canary) - 1; i >= 0; i-- {
		b.WriteByte(c.Canary[i])
	}
	return []byte(b.String())
}

// want says what has to come of an attempt.
type want string

const (
	refused want = "refused"
	works   want = "works"
)

// attempt is one thing that is tried.
type attempt struct {
	group, name string
	// want by network mode; "" is for all that are not named.
	want map[string]want
	// inner: it is tried from an inner container, too.
	inner bool
	// run tries. through: it was possible. got is what was seen, in a few words.
	run func(c *Config) (got string, through bool)
}

func (a *attempt) expected(mode string) want {
	if w, ok := a.want[mode]; ok {
		return w
	}
	return a.want[""]
}

// always is the same in every network mode.
func always(w want) map[string]want { return map[string]want{"": w} }

// inModes is for the network; with none everything is refused.
func inModes(full, restricted want) map[string]want {
	return map[string]want{"full": full, "restricted": restricted, "none": refused}
}

// Row is one line of the table.
type Row struct {
	Group    string `json:"group"`
	Name     string `json:"name"`
	Expected string `json:"expected"`
	Got      string `json:"got"`
	Through  bool   `json:"through"`
	OK       bool   `json:"ok"`
}

func (a *attempt) row(c *Config) Row {
	got, through := a.run(c)
	w := a.expected(c.Mode)
	if len(got) > maxGot {
		got = got[:maxGot]
	}
	return Row{
		Group: a.group, Name: a.name, Expected: string(w), Got: strings.ToValidUTF8(got, "?"), Through: through,
		OK: through == (w == works),
	}
}

// maxGot keeps a row readable.
const maxGot = 160
