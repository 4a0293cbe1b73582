package projects

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/internal/versionrange"
	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func checkRepo(d *decoder, v *value) {
	_, err := git.RepoTransport(v.Text)
	if bad, ok := errors.AsType[*git.RepoURLError](err); ok {
		if before, _, ok := strings.Cut(v.Text, "@"); ok {
			_, user, _ := strings.Cut(before, "://")
			if _, password, ok := strings.Cut(user, ":"); ok {
				user = password
			}
			d.Hide(user)
		}
		d.Report(v.Node, bad.Code, bad.Hint, "%s", bad.Message)
	}
}

func checkBranch(d *decoder, v *value) {
	if !workorder.ValidRefName(v.Text) {
		d.Report(v.Node, yamlkeys.CodeValue, "compare with git check-ref-format", "%s %q is not a valid branch name", v.Path, v.Text)
	}
}

func validServiceName(s string) bool {
	return workorder.ValidServiceName(s) && s != "localhost" && !strings.HasPrefix(s, "host.docker.")
}

func checkPort(d *decoder, v *value) {
	inner := v.Text
	if outer, rest, two := strings.Cut(v.Text, ":"); two {
		inner = rest
		if n, err := strconv.Atoi(outer); err != nil || n > maxPort || !portSpec.MatchString(outer) {
			d.Report(v.Node, yamlkeys.CodeValue, "write the sandbox's port and the container's: 5433:5432",
				"%s %q does not begin with a port", v.Path, v.Text)
			return
		}
	}
	num, _, _ := strings.Cut(inner, "/")
	if n, err := strconv.Atoi(num); err != nil || n > maxPort || !portSpec.MatchString(inner) {
		d.Report(v.Node, yamlkeys.CodeValue, "write 6379 or 53/udp", "%s %q is not a port", v.Path, v.Text)
	}
}

// The limits of a box's memory: its engine needs the minimum, and more than the maximum is a wrong unit.
const (
	leastMemory = 64 << 20
	mostMemory  = 64 << 40
)

func checkMemory(d *decoder, v *value) {
	if v.Num < leastMemory || v.Num > mostMemory {
		d.Report(v.Node, yamlkeys.CodeValue, "write a size such as 8g", "%s %s is not between 64m and 64t", v.Path, v.Text)
	}
}

var windowsPath = lazyregexp.New(`^[A-Za-z]:\\`)

func checkToolVersion(d *decoder, v *value) {
	if _, err := versionrange.Parse(v.Text); err != nil || !workorder.ValidToolVersion(v.Text) {
		d.Report(v.Node, yamlkeys.CodeValue, `write a version such as 22 or 1.26.3, or a range such as ">=20 <23"`,
			"%s: %q is neither a version nor a range", v.Path, v.Text)
	}
}

func checkVolume(d *decoder, v *value) {
	name, target, two := strings.Cut(v.Text, ":")
	switch {
	case strings.Contains(v.Text, "docker.sock"):
		d.Report(v.Node, codeHostMount, "remove it: commands in the sandbox reach the sandbox's own Docker daemon as it is",
			"%s asks for a Docker socket; the host's is never given to a sandbox", v.Path)
	case strings.ContainsAny(name, `/\~$`) && two, strings.HasPrefix(name, "."), windowsPath.MatchString(v.Text):
		d.Report(v.Node, codeHostMount, "use a volume, name:/path, and fill it in setup; the repository is at "+workorder.Workspace,
			"%s %q binds a host directory; the sandbox has none", v.Path, v.Text)
	case !two:
		d.Report(v.Node, yamlkeys.CodeValue, "write name:/path", "%s %q is not name:/path", v.Path, v.Text)
	case !projectName.MatchString(name), !path.IsAbs(target), strings.ContainsAny(target, ": \t"):
		d.Report(v.Node, yamlkeys.CodeValue, "write name:/path, without options", "%s %q is not name:/path", v.Path, v.Text)
	}
}

// checkArgv refuses empty commands and compose's special forms.
func checkArgv(d *decoder, v *value) {
	if len(v.Items) == 0 {
		d.Report(v.Node, yamlkeys.CodeValue, "write a text for the shell, or a list of arguments", "%s is empty", v.Path)
		return
	}
	switch first := v.Items[0].Text; {
	case strings.TrimSpace(first) == "":
		d.Report(v.Node, yamlkeys.CodeValue, "", "%s has no program", v.Path)
	case strings.HasSuffix(v.Path, "healthcheck.test") && first == "NONE":
		d.Report(v.Node, codeUnsupported, "leave healthcheck out and name a port, or give a command", "%s NONE is not supported", v.Path)
	case strings.HasSuffix(v.Path, "healthcheck.test") && (first == "CMD" || first == "CMD-SHELL") && len(v.Items) == 1:
		d.Report(v.Node, yamlkeys.CodeValue, "", "%s has no command after %s", v.Path, first)
	}
}

// Sources of a secret: the scheme of its reference.
const (
	SecretEnv   = "env"
	SecretFile  = "file"
	SecretCmd   = "cmd"
	SecretLogin = "login" // the login of a harness's program on the host
)

// secretTools are the schemes that stand for a command of the tool with that name, with the form of their references.
var secretTools = map[string]string{"op": "op://VAULT/ITEM/FIELD", "vault": "vault://PATH.FIELD"}

// readSecret returns the command by which a secret's tool reads a reference; ok is false for one of another form.
func readSecret(tool, target string) (command string, ok bool) {
	switch tool {
	case "op":
		const parts = 3 // with a section, there are more
		return text.Shell("op", "read", "op://"+target), len(strings.FieldsFunc(target, func(r rune) bool { return r == '/' })) >= parts
	case "vault":
		path, field := target, "value"
		if i := strings.LastIndexByte(target, '.'); i > 0 {
			path, field = target[:i], target[i+1:]
		}
		return text.Shell("vault", "kv", "get", "-field="+field, path), field != "" && !strings.HasPrefix(path, "-")
	}
	return "", false
}

func checkSecret(d *decoder, v *value) {
	name, _, _ := strings.Cut(strings.TrimPrefix(v.Path, yamlkeys.InSecrets), ".")
	scheme, target, ok := strings.Cut(v.Text, "://")
	switch {
	case ok && secretTools[scheme] != "":
		if _, ok := readSecret(scheme, target); !ok {
			d.Hide(v.Text)
			d.Report(v.Node, yamlkeys.CodeValue, "write "+secretTools[scheme], "secret %s is not a reference of %s", name, scheme)
		}
	case !ok || !slices.Contains([]string{SecretEnv, SecretFile, SecretCmd, SecretLogin}, scheme):
		// The value may be the secret itself: do not print it.
		d.Hide(v.Text)
		d.Report(v.Node, yamlkeys.CodeSecret, fmt.Sprintf("write %s: env://%s and export %s, or use file://PATH or cmd://COMMAND", name,
			name, name),
			"secret %s is not a reference, and a value is never read from a project file", name)
	case strings.TrimSpace(target) == "":
		d.Report(v.Node, yamlkeys.CodeValue, "", "secret %s refers to nothing", name)
	case scheme == SecretEnv && !workorder.ValidEnvName(target):
		d.Report(v.Node, yamlkeys.CodeValue, "write env://NAME", "secret %s does not name an environment variable", name)
	case scheme == SecretLogin:
		checkLogin(d, v, name, target)
	}
}

// checkPlaces checks that a secret has one source, or a list of them.
func checkPlaces(d *decoder, v *value) {
	if some := v.Get("any_of"); some != nil && v.Get("from") != nil {
		d.Report(some.Node, codeConflict, "keep one of the two", "secret %s has from and any_of", strings.TrimPrefix(v.Path, yamlkeys.InSecrets))
	}
}

func checkAnyOf(d *decoder, v *value) {
	if len(v.Items) == 0 {
		d.Report(v.Node, yamlkeys.CodeMissing, "add a reference such as env://NAME", "%s is empty", v.Path)
	}
}

func checkAuthor(d *decoder, v *value) {
	if _, err := workorder.ParseIdentity(v.Text); err != nil {
		d.Report(v.Node, yamlkeys.CodeValue, "write author: Build Bot <bot@example.com>", "%v", err)
	}
}

func checkPermission(d *decoder, v *value) {
	if _, ok := CommandPrefix(v.Text); !ok && !slices.Contains(Tools(), v.Text) {
		d.Report(v.Node, yamlkeys.CodeValue, "write Bash(git push:*), or one of "+strings.Join(Tools(), ", "), "%s %q is no rule", v.Path, v.Text)
	}
}

func checkPermissions(d *decoder, v *value) {
	if v.Get("skip").Bool() && (v.Get("allow") != nil || v.Get("deny") != nil) {
		d.Report(v.Node, codeConflict, "keep skip, or the lists", "%s has skip and lists", v.Path)
	}
}

// checkAgent checks an agent's harness, and its permissions as far as the program can keep them.
func checkAgent(d *decoder, v *value) {
	checkHarness(d, v)
	for _, list := range []string{"allow", "deny"} {
		rules := v.Get("permissions").Get(list)
		if rules == nil {
			continue
		}
		for _, r := range rules.Items {
			_, command := CommandPrefix(r.Text)
			switch name := v.Get("name").Str(); {
			case name == workorder.HarnessCommand, v.Get("command") != nil:
				d.Report(rules.Node, yamlkeys.CodeValue, "use its own configuration", "%s: a command has no permissions to set", rules.Path)
				return
			case name == workorder.HarnessCodex && !command:
				d.Report(r.Node, yamlkeys.CodeValue, "write Bash(git push:*)", "%s %q: codex has rules for commands only", r.Path, r.Text)
			}
		}
	}
}

func checkHarness(d *decoder, v *value) {
	name, command := v.Text, v.Get("command")
	if v.Schema.Kind == yamlkeys.Object {
		name = v.Get("name").Str()
	}
	switch {
	case name == workorder.HarnessCommand && command == nil:
		d.Report(v.Node, yamlkeys.CodeMissing, "write harness: {name: command, command: ./agent.sh}", "the command harness needs a command")
	case name != "" && name != workorder.HarnessCommand && command != nil:
		d.Report(command.Node, codeConflict, "use `name: command`, or pass `args`",
			"harness.command is only for the command harness, not for %s", name)
	}
}

// checkFile checks what several keys decide together.
func checkFile(d *decoder, root *value) {
	cycle := root.Get("lifecycle")
	for _, name := range []string{"env", "validate", "dev"} {
		top, low := root.Get(name), cycle.Get(name)
		if top == nil || low == nil || top.Equal(low, name == "validate") {
			continue
		}
		d.Report(low.Node, codeConflict, "keep one of the two",
			"%s is given at the top (line %d) and under lifecycle (line %d) with different values", name, top.Node.Line, low.Node.Line)
	}
	env := either(root, "env")
	if root.Get("image") == nil {
		variables := imageVariables
		if root.Get("browser").Bool() || either(root, "dev") != nil {
			variables = slices.Concat(variables, browserVariables)
		}
		checkReferences(d, env, variables)
	} else {
		checkReferences(d, env, nil)
	}
	for _, s := range root.Get("secrets").Entries() {
		if e := env.Get(s.Name); e != nil {
			d.Report(s.Key, codeConflict, "remove it from env", "%s is in secrets and in env (line %d)", s.Name, e.Node.Line)
		}
	}
	checkAccess(d, root)
}

// imageVariables are the variables that env may refer to in the default image.
var imageVariables = []string{
	"PATH", "HOME", "USER", "LOGNAME", "LANG", "GIT_TERMINAL_PROMPT", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE",
	"PLAYWRIGHT_BROWSERS_PATH", "PLAYWRIGHT_SKIP_BROWSER_GC", "DISABLE_AUTOUPDATER",
}

// browserVariables are those that the default image has with a browser.
var browserVariables = []string{
	"PLAYWRIGHT_DRIVER_PATH", "PLAYWRIGHT_NODEJS_PATH", "PUPPETEER_EXECUTABLE_PATH", "PUPPETEER_SKIP_DOWNLOAD", "CHROME_BIN", "CHROME_PATH",
	"AGENT_BROWSER_EXECUTABLE_PATH", "AGENT_BROWSER_NO_VERSION_CHECK",
}

// checkReferences reports references that cannot be expanded. nil variables are those of another image, which are unknown.
func checkReferences(d *decoder, env *value, variables []string) {
	const hint = "write $$ for a dollar"
	for _, f := range env.Entries() {
		names, err := text.References(f.Text)
		if err != nil {
			d.Report(f.Node, yamlkeys.CodeValue, hint, "env.%s: %v", f.Name, err)
			continue
		}
		for _, name := range names {
			switch {
			case variables == nil || slices.Contains(variables, name):
			case slices.Contains(browserVariables, name):
				d.Report(f.Node, yamlkeys.CodeValue, "add `browser: true`", "env.%s: $%s is a variable of the image with a browser", f.Name, name)
			default:
				d.Report(f.Node, yamlkeys.CodeValue, hint+"; values refer to variables of the image alone: "+strings.Join(variables, ", "),
					"env.%s: $%s is no variable of the image", f.Name, name)
			}
		}
	}
}

// either returns a key that may be at the top or under lifecycle.
func either(root *value, name string) *value {
	if top := root.Get(name); top != nil {
		return top
	}
	return root.Get("lifecycle").Get(name)
}
