// Package conformance has the checks of Docker in a box: the CLI, compose, BuildKit,
// volumes, limits and what must be refused, used as an agent uses them. They are a script
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

// Package is the one package of the distribution that the checks need: their images are
// made of one static program, so that no registry has to answer.
const Package = "busybox-static"

// RedisVariable names the environment variable with the image of the service.
const RedisVariable = "REDIS_IMAGE"

// Part is a part of the checks: each wants a box of its own.
type Part string

// The parts.
const (
	// Lazy begins where no engine runs yet: the first command starts it.
	Lazy Part = "lazy"
	// Services wants a running service redis of the image in RedisVariable.
	Services Part = "services"
)

// Parts lists them.
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

// Command runs a part in the work tree that has the files.
func Command(p Part) string {
	return "export SANDBOX_NETWORK=sandbox-agent-$SANDBOX_AGENT_TASK_ID\nexec bash checks.sh " + string(p)
}

// Script is Command for a work tree that has nothing: it writes the files first.
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
	// Detail is what a failed one printed, lines separated by a bar.
	Detail string `json:"detail"`
}

// said is how checks.sh begins a line of its report on standard output.
const said = "check: "

// Parse reads a line of the script's output; ok is false for one that is no verdict.
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

// Missing are the checks that should have run and did not, as failed for a reason.
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
