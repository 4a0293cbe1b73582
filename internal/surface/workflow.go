package surface

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
)

// Keys of CI files, in lower case, by what their values do.
var (
	commandKeys = keys("run script scripts before_script after_script command commands bash pwsh powershell sh cmd inlinescript args entrypoint install before_install after_success after_failure before_deploy deploy after_deploy pre post main exec build_script test_script on_success on_failure on_finish postupgradetasks ignorecommand buildcommand installcommand pre_install post_install pre_build post_build post_checkout post_create_environment post_system_dependencies pre_create_environment jobs_script afterscript")
	codeKeys    = keys("uses image container plugin plugins orbs include extends template resource remote pipe ref repository source_image _extends")
	codeParents = keys("orbs plugins plugin extends container")
	triggerTops = keys("on true trigger triggers pr")
	triggerKeys = keys("when if only except rules branches")
)

func keys(words string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		m[w] = true
	}
	return m
}

var (
	// pinnedUse is an action at a commit or an image at a digest.
	pinnedUse = pattern.New(`@[0-9a-f]{40}\b|@sha256:[0-9a-f]{64}`)
	// interpolated is text that an outsider writes, put into a command.
	interpolated = pattern.New(`\$\{\{[^}]*(github\.event\.(issue|pull_request|comment|review|discussion|head_commit|commits|pages|workflow_run)|github\.head_ref|inputs\.)[^}]*\}\}`)
	secretUse    = pattern.New(`\$\{\{[^}]*\bsecrets(\.|\[)[^}]*\}\}|\bid_tokens\b|from_secret|\btoJSON\(\s*secrets`)
	dangerEvents = pattern.New(`\b(pull_request_target|workflow_run|issue_comment|repository_dispatch|issues|discussion|fork)\b`)
	ownActions   = pattern.New(`^(actions|github)/`)
	commandShell = pattern.New(`^\s*(-\s*)?(run|script|command|uses|image|sh|bat|powershell)\b|\b(sh|bat|pwsh|powershell)\s*[('"]`)
	scalarWhere  = pattern.New(`(\.?\[\])+$`)
)

// checkCI compares a CI file by its values: commands, code from elsewhere, permissions, triggers, secrets.
func checkCI(c *change, s *sink) {
	if c.deleted() {
		s.add(kindWorkflow, 0, false, "removed")
		return
	}
	walk := walkYAML
	switch c.ext() {
	case ".yml", ".yaml":
	case ".json", ".json5":
		walk = walkJSON
	default:
		checkCIText(c, s)
		return
	}
	added, removed, err := newLeaves(c, walk)
	if err != nil {
		s.add(kindWorkflow, 0, false, "it cannot be read as %s, lines are compared", strings.TrimPrefix(c.ext(), "."))
		checkCIText(c, s)
		return
	}
	was := oldCI(c, walk)
	for _, l := range added {
		kind, grave, textOf := judgeCI(l, was)
		s.add(kindWorkflow, l.line, grave, "%s: %s", kind, quote(textOf))
	}
	if len(added) > 0 {
		return
	}
	if len(removed) > 0 {
		l := removed[0]
		s.add(kindWorkflow, 0, l.has("permissions") || l.has("if") || l.has("when"), "removed: %s", quote(l.where()+": "+l.value))
		return
	}
	// Equal values: comments, or an order that counts.
	if !sameMeaning(c) {
		s.add(kindWorkflow, 0, false, "lines have another order or another form")
	}
}

// before is what base had in a CI file, wherever it stood.
type before struct {
	commands map[string]bool // lines of commands
	code     map[string]bool // names of actions and images, without versions
	secrets  map[string]bool
}

func oldCI(c *change, walk func(string, func(leaf)) error) before {
	b := before{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	if c.old == "" {
		return b
	}
	_ = walk(c.old, func(l leaf) {
		for cmd := range strings.Lines(l.value) {
			b.commands[strings.TrimSpace(cmd)] = true
		}
		b.code[unversioned(l.value)] = true
		for _, u := range secretUse.FindAllString(l.value, -1) {
			b.secrets[u] = true
		}
	})
	return b
}

// unversioned is an action or image without its version.
func unversioned(s string) string {
	name, _, _ := strings.Cut(s, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	return name
}

// judgeCI says what a new value of a CI file is.
func judgeCI(l leaf, was before) (what string, grave bool, textOf string) {
	key := strings.ToLower(l.key())
	text := scalarWhere.ReplaceAllString(l.where(), "") + ": " + l.value
	code := codeKeys[key] || slices.ContainsFunc(l.path, func(p string) bool { return codeParents[strings.ToLower(p)] }) || l.path0() == "include"
	trigger := triggerTops[strings.ToLower(l.path0())] || triggerKeys[key]
	if cmd, isNew := newCommand(l.value, was); isNew && suspicious(l.value) != "" {
		why := suspicious(l.value)
		for c := range strings.Lines(l.value) {
			if suspicious(c) == why {
				cmd = c
			}
		}
		return why, true, cmd
	}
	for _, u := range secretUse.FindAllString(l.value+" "+key, -1) {
		if !was.secrets[u] {
			return "new use of a secret", true, text
		}
	}
	switch {
	case l.has("matrix"):
		return "changed", false, text // what stands here is used by commands, which are compared themselves
	case l.has("permissions"):
		return "permissions", l.value != "read" && l.value != "none" && l.value != "{}" && l.value != "read-all", text
	case code && !commandKeys[key]:
		return judgeCode(l, was, text)
	case trigger && dangerEvents.MatchString(text):
		return "runs with rights on the repository for changes of outsiders", true, text
	case commandKeys[key]:
		cmd, isNew := newCommand(l.value, was)
		if interpolated.MatchString(l.value) {
			return "puts words of outsiders into a command", true, interpolated.FindString(l.value)
		}
		if isNew {
			return "new command", true, cmd
		}
		return "commands changed", false, text
	case key == "runs-on" && strings.Contains(l.value, "self-hosted"):
		return "runs on a machine of one's own", true, text
	case key == "secrets" || l.has("secrets") || l.has("id_tokens"):
		return "secrets", true, text
	case key == "persist-credentials" || key == "allow_failure" || key == "continue-on-error":
		return "changed", false, text
	case trigger:
		return "when it runs", false, text
	}
	return "changed", false, text
}

// newCommand is the first line of a command that base did not have.
func newCommand(value string, was before) (string, bool) {
	for cmd := range strings.Lines(value) {
		cmd = strings.TrimSpace(cmd)
		if cmd != "" && !strings.HasPrefix(cmd, "#") && !was.commands[cmd] {
			return cmd, true
		}
	}
	return "", false
}

// judgeCode is about actions, images and includes.
func judgeCode(l leaf, was before, text string) (what string, grave bool, textOf string) {
	local := strings.HasPrefix(l.value, "./") || strings.HasPrefix(l.value, "$/")
	switch {
	case was.code[unversioned(l.value)] && !local:
		if pinnedUse.MatchString(l.value) || ownActions.MatchString(l.value) || l.key() != "uses" {
			return "another version", false, text
		}
		return "another version, not pinned to a commit", false, text
	case l.key() == "uses" && !local && !ownActions.MatchString(l.value) && !pinnedUse.MatchString(l.value):
		return "new code from elsewhere, not pinned to a commit", true, text
	case l.key() == "uses" && ownActions.MatchString(l.value), local:
		return "new action", false, text
	}
	return "new code from elsewhere", true, text
}

// checkCIText is for CI files in other languages: Groovy, Starlark, Jsonnet, TOML, scripts.
func checkCIText(c *change, s *sink) {
	c.diff()
	n := 0
	for _, l := range meaning(c, c.added) {
		if bracket(l.text) {
			continue
		}
		n++
		why := suspicious(l.text)
		switch {
		case why != "":
			s.add(kindWorkflow, l.n, true, "%s: %s", why, quote(l.text))
		case commandShell.MatchString(l.text):
			s.add(kindWorkflow, l.n, true, "new command: %s", quote(l.text))
		default:
			s.add(kindWorkflow, l.n, false, "new: %s", quote(l.text))
		}
	}
	if n == 0 && !sameMeaning(c) {
		s.add(kindWorkflow, 0, false, "lines were removed or have another order")
	}
}

// checkHookConfig is pre-commit's list of hooks: a new version of a known repository is mild.
func checkHookConfig(c *change, s *sink) {
	if c.deleted() {
		s.add(kindHook, 0, false, "removed")
		return
	}
	added, removed, err := newLeaves(c, walkYAML)
	if err != nil {
		checkSettings(c, s)
		return
	}
	slices.SortStableFunc(added, byWeight)
	for _, l := range added {
		text := quote(fmt.Sprintf("%s: %s", l.key(), l.value))
		switch why := suspicious(l.value); {
		case why != "":
			s.add(kindHook, l.line, true, "%s: %s", why, text)
		case l.key() == "repo" || l.key() == "entry" || l.key() == "additional_dependencies" && strings.ContainsAny(l.value, ":/"):
			s.add(kindHook, l.line, true, "new: %s", text)
		default:
			s.add(kindHook, l.line, false, "changed: %s", text)
		}
	}
	if len(added) == 0 && len(removed) > 0 {
		s.add(kindHook, 0, false, "removed: %s", quote(removed[0].key()+": "+removed[0].value))
	}
}
