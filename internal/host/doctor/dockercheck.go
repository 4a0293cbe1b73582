package doctor

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

//go:embed files
var files embed.FS

// DockerPackage is the only package that the checks need: their images contain one static program, so that they need no registry.
const DockerPackage = "busybox-static"

// RedisVariable is the environment variable that names the service's image.
const RedisVariable = "REDIS_IMAGE"

// DockerPart is a part of the checks that needs its own box.
type DockerPart string

// Parts of the checks.
const (
	Lazy     DockerPart = "lazy"     // the first command starts the engine
	Services DockerPart = "services" // needs a running service redis of the image in RedisVariable
)

// DockerParts returns all parts.
func DockerParts() []DockerPart { return []DockerPart{Lazy, Services} }

// DockerFiles returns the files of the checks, by name in a working tree.
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

// DockerCommand runs a part in a working tree with the files.
func DockerCommand(p DockerPart) string {
	return "export SANDBOX_NETWORK=sandbox-agent-$SANDBOX_AGENT_TASK_ID\nexec bash checks.sh " + string(p)
}

// DockerScript is DockerCommand for an empty working tree.
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

var checkLine = lazyregexp.New(`(?m)^\tcheck "([^"]+)" `)

// DockerChecks returns the names of a part's checks, in order.
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

// DockerCheck is the result of one check.
type DockerCheck struct {
	Part   DockerPart `json:"part"`
	Name   string     `json:"name"`
	OK     bool       `json:"ok"`
	Detail string     `json:"detail"` // output of a failed check, with | for line ends
}

// said begins each result that checks.sh prints.
const said = "check: "

// ParseDockerCheck parses a line of the script's output; ok is false if it is not a result.
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

// MissingDockerChecks returns the checks that are not in done, as failed for the reason why.
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
