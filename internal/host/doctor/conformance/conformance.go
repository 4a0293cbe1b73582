// Package conformance has the checks of Docker in a box, used as an agent uses it: the
// CLI, compose, BuildKit, volumes, limits and what must be refused. They are a script
// that runs as user sandbox; `doctor --deep` and the end-to-end tests run the same one.
package conformance

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
)

//go:embed files
var files embed.FS

// Package is the one package of the distribution that the checks need: their images have
// one static program, so that no registry is needed.
const Package = "busybox-static"

// RedisVariable names the environment variable with the image of the service.
const RedisVariable = "REDIS_IMAGE"

// Part is a part of the checks that needs a box of its own.
type Part string

// The parts.
const (
	// Lazy starts without an engine: the first command starts it.
	Lazy Part = "lazy"
	// Services needs a running service redis of the image in RedisVariable.
	Services Part = "services"
)

// Parts lists all parts.
func Parts() []Part { return []Part{Lazy, Services} }

// Files are the files of the checks by name, as a work tree has them.
func Files() (map[string]string, error) {
	all := map[string]string{}
	err := fs.WalkDir(files, "files", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(files, path)
		all[strings.TrimPrefix(path, "files/")] = string(b)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the checks: %w", err)
	}
	return all, nil
}

// Command runs a part in a work tree with the files.
func Command(p Part) string {
	return "export SANDBOX_NETWORK=sandbox-agent-$SANDBOX_AGENT_TASK_ID\nexec bash checks.sh " + string(p)
}

// Script is Command for an empty work tree: it writes the files first.
func Script(p Part) (string, error) {
	all, err := Files()
	if err != nil {
		return "", err
	}
	const end = "END-OF-THE-FILE"
	var b strings.Builder
	b.WriteString("set -e\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.Contains(all[name], end) || !strings.HasSuffix(all[name], "\n") {
			return "", fmt.Errorf("write the checks: %s cannot be part of a script", name)
		}
		fmt.Fprintf(&b, "cat >%s <<'%s'\n%s%s\n", name, end, all[name], end)
	}
	b.WriteString(Command(p) + "\n")
	return b.String(), nil
}

var checkLine = regexp.MustCompile(`(?m)^\tcheck "([^"]+)" `)

// Names are the checks of a part in their order.
func Names(p Part) ([]string, error) {
	all, err := Files()
	if err != nil {
		return nil, err
	}
	_, body, _ := strings.Cut(all["checks.sh"], "\n"+string(p)+"() {\n")
	body, _, found := strings.Cut(body, "\n}\n")
	if !found {
		return nil, fmt.Errorf("read the checks: there is no part %s", p)
	}
	var names []string
	for _, m := range checkLine.FindAllStringSubmatch(body, -1) {
		names = append(names, m[1])
	}
	return names, nil
}

// Check is one finished check.
type Check struct {
	Part Part   `json:"part"`
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Detail is the output of a failed one, with bars for line ends.
	Detail string `json:"detail"`
}

// said is the start of each verdict that checks.sh prints on standard output.
const said = "check: "

// Parse reads a line of the script's output; ok is false if it is not a verdict.
func Parse(p Part, line string) (c Check, ok bool) {
	line, ok = strings.CutPrefix(line, said)
	if !ok {
		return c, false
	}
	verdict, rest, _ := strings.Cut(line, " ")
	if verdict != "ok" && verdict != "FAIL" {
		return c, false
	}
	name, detail, _ := strings.Cut(rest, "|")
	return Check{Part: p, Name: name, OK: verdict == "ok", Detail: strings.Trim(detail, "|")}, name != ""
}

// Missing are the checks that did not run, as failed with the reason why.
func Missing(p Part, done []Check, why string) ([]Check, error) {
	names, err := Names(p)
	if err != nil {
		return nil, err
	}
	var missing []Check
	for _, n := range names {
		if !slices.ContainsFunc(done, func(c Check) bool { return c.Part == p && c.Name == n }) {
			missing = append(missing, Check{Part: p, Name: n, Detail: "did not run: " + why})
		}
	}
	return missing, nil
}
