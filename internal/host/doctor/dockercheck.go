package doctor

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

// DockerPackage is the one package of the distribution that the checks need: their images have
// one static program, so that no registry is needed.
const DockerPackage = "busybox-static"

// RedisVariable names the environment variable with the image of the service.
const RedisVariable = "REDIS_IMAGE"

// DockerPart is a part of the checks that needs a box of its own.
type DockerPart string

// The parts.
const (
	// Lazy starts without an engine: the first command starts it.
	Lazy DockerPart = "lazy"
	// Services needs a running service redis of the image in RedisVariable.
	Services DockerPart = "services"
)

// DockerParts lists all parts.
func DockerParts() []DockerPart { return []DockerPart{Lazy, Services} }

// DockerFiles are the files of the checks by name, as a work tree has them.
func DockerFiles() (map[string]string, error) {
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

// DockerCommand runs a part in a work tree with the files.
func DockerCommand(p DockerPart) string {
	return "export SANDBOX_NETWORK=sandbox-agent-$SANDBOX_AGENT_TASK_ID\nexec bash checks.sh " + string(p)
}

// DockerScript is DockerCommand for an empty work tree: it writes the files first.
func DockerScript(p DockerPart) (string, error) {
	all, err := DockerFiles()
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
	b.WriteString(DockerCommand(p) + "\n")
	return b.String(), nil
}

var checkLine = regexp.MustCompile(`(?m)^\tcheck "([^"]+)" `)

// DockerChecks are the checks of a part in their order.
func DockerChecks(p DockerPart) ([]string, error) {
	all, err := DockerFiles()
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

// DockerCheck is one finished check.
type DockerCheck struct {
	Part DockerPart `json:"part"`
	Name string     `json:"name"`
	OK   bool       `json:"ok"`
	// Detail is the output of a failed one, with bars for line ends.
	Detail string `json:"detail"`
}

// said is the start of each verdict that checks.sh prints on standard output.
const said = "check: "

// ParseDockerCheck reads a line of the script's output; ok is false if it is not a verdict.
func ParseDockerCheck(p DockerPart, line string) (c DockerCheck, ok bool) {
	line, ok = strings.CutPrefix(line, said)
	if !ok {
		return c, false
	}
	verdict, rest, _ := strings.Cut(line, " ")
	if verdict != "ok" && verdict != "FAIL" {
		return c, false
	}
	name, detail, _ := strings.Cut(rest, "|")
	return DockerCheck{Part: p, Name: name, OK: verdict == "ok", Detail: strings.Trim(detail, "|")}, name != ""
}

// MissingDockerChecks are the checks that did not run, as failed with the reason why.
func MissingDockerChecks(p DockerPart, done []DockerCheck, why string) ([]DockerCheck, error) {
	names, err := DockerChecks(p)
	if err != nil {
		return nil, err
	}
	var missing []DockerCheck
	for _, n := range names {
		if !slices.ContainsFunc(done, func(c DockerCheck) bool { return c.Part == p && c.Name == n }) {
			missing = append(missing, DockerCheck{Part: p, Name: n, Detail: "did not run: " + why})
		}
	}
	return missing, nil
}
