package projects

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/envref"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/versions"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func checkRepo(d *decoder, v *value) {
	_, err := git.RepoTransport(v.text)
	if bad, ok := errors.AsType[*git.RepoURLError](err); ok {
		if before, _, ok := strings.Cut(v.text, "@"); ok {
			_, user, _ := strings.Cut(before, "://")
			if _, password, ok := strings.Cut(user, ":"); ok {
				user = password
			}
			d.src.hide(user)
		}
		d.report(v.node, bad.Code, bad.Hint, "%s", bad.Message)
	}
}

func checkBranch(d *decoder, v *value) {
	if !workorder.ValidRefName(v.text) {
		d.report(v.node, codeValue, "compare with git check-ref-format", "%s %q is not a valid branch name", v.path, v.text)
	}
}

func validServiceName(s string) bool {
	return workorder.ValidServiceName(s) && s != "localhost" && !strings.HasPrefix(s, "host.docker.")
}

func checkPort(d *decoder, v *value) {
	inner := v.text
	if outer, rest, two := strings.Cut(v.text, ":"); two {
		inner = rest
		if n, err := strconv.Atoi(outer); err != nil || n > maxPort || !portSpec.MatchString(outer) {
			d.report(v.node, codeValue, "write the sandbox's port and the container's: 5433:5432", "%s %q does not begin with a port", v.path, v.text)
			return
		}
	}
	num, _, _ := strings.Cut(inner, "/")
	if n, err := strconv.Atoi(num); err != nil || n > maxPort || !portSpec.MatchString(inner) {
		d.report(v.node, codeValue, "write 6379 or 53/udp", "%s %q is not a port", v.path, v.text)
	}
}

// The memory of a box: below the least its own engine does not start, and more
// than the most is a slip of the unit.
const (
	leastMemory = 64 << 20
	mostMemory  = 64 << 40
)

func checkMemory(d *decoder, v *value) {
	if v.num < leastMemory || v.num > mostMemory {
		d.report(v.node, codeValue, "write a size such as 8g", "%s %s is not between 64m and 64t", v.path, v.text)
	}
}

var windowsPath = regexp.MustCompile(`^[A-Za-z]:\\`)

func checkToolVersion(d *decoder, v *value) {
	if _, err := versions.Parse(v.text); err != nil || !workorder.ValidToolVersion(v.text) {
		d.report(v.node, codeValue, `write a version such as 22 or 1.26.3, or a range such as ">=20 <23"`, "%s: %q is neither a version nor a range", v.path, v.text)
	}
}

func checkVolume(d *decoder, v *value) {
	name, target, two := strings.Cut(v.text, ":")
	switch {
	case strings.Contains(v.text, "docker.sock"):
		d.report(v.node, codeHostMount, "remove it: commands in the sandbox reach the sandbox's own Docker daemon as it is",
			"%s asks for a Docker socket; the host's is never given to a sandbox", v.path)
	case strings.ContainsAny(name, `/\~$`) && two, strings.HasPrefix(name, "."), windowsPath.MatchString(v.text):
		d.report(v.node, codeHostMount, "use a volume, name:/path, and fill it in setup; the repository is at "+workorder.Workspace,
			"%s %q binds a host folder; the sandbox has none", v.path, v.text)
	case !two:
		d.report(v.node, codeValue, "write name:/path", "%s %q is not name:/path", v.path, v.text)
	case !projectName.MatchString(name), !path.IsAbs(target), strings.ContainsAny(target, ": \t"):
		d.report(v.node, codeValue, "write name:/path, without options", "%s %q is not name:/path", v.path, v.text)
	}
}

// checkArgv refuses empty commands and what compose writes where it means
// something else.
func checkArgv(d *decoder, v *value) {
	if len(v.items) == 0 {
		d.report(v.node, codeValue, "write a text for the shell, or a list of arguments", "%s is empty", v.path)
		return
	}
	switch first := v.items[0].text; {
	case strings.TrimSpace(first) == "":
		d.report(v.node, codeValue, "", "%s has no program", v.path)
	case strings.HasSuffix(v.path, "healthcheck.test") && first == "NONE":
		d.report(v.node, codeUnsupported, "leave healthcheck out and name a port, or give a command", "%s NONE is not supported", v.path)
	case strings.HasSuffix(v.path, "healthcheck.test") && (first == "CMD" || first == "CMD-SHELL") && len(v.items) == 1:
		d.report(v.node, codeValue, "", "%s has no command after %s", v.path, first)
	}
}

// inSecrets is how the path of every value below secrets begins.
const inSecrets = "secrets."

// Sources of a secret: the scheme of its reference.
const (
	SecretEnv  = "env"
	SecretFile = "file"
	SecretCmd  = "cmd"
	// SecretLogin is the login that a harness's program has on the host.
	SecretLogin = "login"
)

func checkSecret(d *decoder, v *value) {
	name, _, _ := strings.Cut(strings.TrimPrefix(v.path, inSecrets), ".")
	scheme, target, ok := strings.Cut(v.text, "://")
	switch {
	case !ok || !slices.Contains([]string{SecretEnv, SecretFile, SecretCmd, SecretLogin}, scheme):
		// It may be the secret itself: it must not appear anywhere.
		d.src.hide(v.text)
		d.report(v.node, codeSecret, fmt.Sprintf("write %s: env://%s and export %s, or use file://PATH or cmd://COMMAND", name, name, name),
			"secret %s is not a reference, and a value is never read from a project file", name)
	case strings.TrimSpace(target) == "":
		d.report(v.node, codeValue, "", "secret %s refers to nothing", name)
	case scheme == SecretEnv && !workorder.ValidEnvName(target):
		d.report(v.node, codeValue, "write env://NAME", "secret %s does not name an environment variable", name)
	case scheme == SecretLogin:
		checkLogin(d, v, name, target)
	}
}

// checkPlaces makes sure that a secret says once where it is read from.
func checkPlaces(d *decoder, v *value) {
	if some := v.get("any_of"); some != nil && v.get("from") != nil {
		d.report(some.node, codeConflict, "keep one of the two", "secret %s has from and any_of", strings.TrimPrefix(v.path, inSecrets))
	}
}

func checkAnyOf(d *decoder, v *value) {
	if len(v.items) == 0 {
		d.report(v.node, codeMissing, "add a reference such as env://NAME", "%s is empty", v.path)
	}
}

func checkAuthor(d *decoder, v *value) {
	if _, err := workorder.ParseIdentity(v.text); err != nil {
		d.report(v.node, codeValue, "write author: Build Bot <bot@example.com>", "%v", err)
	}
}

func checkHarness(d *decoder, v *value) {
	name, command := v.text, v.get("command")
	if v.schema.kind == object {
		name = v.get("name").str()
	}
	switch {
	case name == workorder.HarnessCommand && command == nil:
		d.report(v.node, codeMissing, "write harness: {name: command, command: ./agent.sh}", "the command harness needs a command")
	case name != "" && name != workorder.HarnessCommand && command != nil:
		d.report(command.node, codeConflict, "use `name: command`, or pass `args`", "harness.command is only for the command harness, not for %s", name)
	}
}

// checkFile reports what concerns several keys of the file.
func checkFile(d *decoder, root *value) {
	cycle := root.get("lifecycle")
	for _, name := range []string{"env", "validate", "dev"} {
		top, low := root.get(name), cycle.get(name)
		if top == nil || low == nil || top.equal(low, name == "validate") {
			continue
		}
		d.report(low.node, codeConflict, "keep one of the two",
			"%s is given at the top (line %d) and under lifecycle (line %d) with different values", name, top.node.Line, low.node.Line)
	}
	env := root.either("env")
	checkReferences(d, env, root.get("image") != nil)
	for _, s := range root.get("secrets").entries() {
		if e := env.get(s.name); e != nil {
			d.report(s.key, codeConflict, "remove it from env", "%s is in secrets and in env (line %d)", s.name, e.node.Line)
		}
	}
	checkAccess(d, root)
}

// imageVariables are what a value of env can refer to in the image built by the CLI, in a task and in a standalone sandbox.
var imageVariables = []string{
	"PATH", "HOME", "USER", "LOGNAME", "LANG", "GIT_TERMINAL_PROMPT", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE",
	"PLAYWRIGHT_BROWSERS_PATH", "PLAYWRIGHT_DRIVER_PATH", "PLAYWRIGHT_NODEJS_PATH", "PLAYWRIGHT_SKIP_BROWSER_GC",
	"PUPPETEER_EXECUTABLE_PATH", "PUPPETEER_SKIP_DOWNLOAD", "CHROME_BIN", "CHROME_PATH", "AGENT_BROWSER_EXECUTABLE_PATH", "AGENT_BROWSER_NO_VERSION_CHECK", "DISABLE_AUTOUPDATER",
}

// checkReferences reports what cannot be expanded. The variables of another image are not known here.
func checkReferences(d *decoder, env *value, otherImage bool) {
	const hint = "write $$ for a dollar"
	for _, f := range env.entries() {
		names, err := envref.Names(f.text)
		if err != nil {
			d.report(f.node, codeValue, hint, "env.%s: %v", f.name, err)
			continue
		}
		for _, name := range names {
			if !otherImage && !slices.Contains(imageVariables, name) {
				d.report(f.node, codeValue, hint+"; values refer to variables of the image alone: "+strings.Join(imageVariables, ", "), "env.%s: $%s is no variable of the image", f.name, name)
			}
		}
	}
}

// either returns a key that may stand at the top or under lifecycle.
func (v *value) either(name string) *value {
	if top := v.get(name); top != nil {
		return top
	}
	return v.get("lifecycle").get(name)
}

func (v *value) entries() []field {
	if v == nil {
		return nil
	}
	return v.fields
}

func (v *value) entriesOf() []*value {
	if v == nil {
		return nil
	}
	return v.items
}
