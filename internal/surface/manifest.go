package surface

import (
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
)

// Scripts that package managers run without being asked for, at installation or around a commit.
var lifecycle = keys("preinstall install postinstall prepublish preprepare prepare postprepare prepack postpack prepublishonly dependencies pnpm:devpreinstall " +
	"pre-install-cmd post-install-cmd pre-update-cmd post-update-cmd pre-autoload-dump post-autoload-dump post-root-package-install post-create-project-cmd pre-operations-exec pre-package-install post-package-install pre-package-update post-package-update init command pre-command-run")

var (
	dependencyKeys = keys("dependencies devdependencies optionaldependencies peerdependencies overrides resolutions bundledependencies require require-dev catalog catalogs")
	trustKeys      = keys("trusteddependencies onlybuiltdependencies neverbuiltdependencies dangerouslyallowallbuilds allow-plugins allowscripts patcheddependencies dependenciesmeta allowbuilds")
	hookKeys       = keys("husky simple-git-hooks githooks pre-commit pre-push ghooks lint-staged nano-staged lefthook")
	// elsewhere is a dependency that does not come from the registry.
	elsewhere = pattern.New(`(?i)^(git(\+\w+)?:|git@|github:|gitlab:|bitbucket:|gist:|https?:|ssh:|[\w.-]+/[\w.-]+(#.*)?$)|^npm:|@(git|https?):|file:(\.\./)*/|file:.*\.t(ar\.)?gz`)
)

// checkPackageJSON compares scripts and sources. Versions of dependencies are the lock file's affair.
func checkPackageJSON(c *change, s *sink) {
	if c.deleted() {
		return
	}
	walk := walkJSON
	if c.ext() == ".yaml" {
		walk = walkYAML
	}
	added, _, err := newLeaves(c, walk)
	if err != nil {
		s.add(kindScript, 0, false, "it cannot be read, lines are compared")
		reportLines(c, s, kindScript, false, scriptLine)
		return
	}
	for _, l := range added {
		judgePackage(c, s, l)
	}
}

// scriptLine is a line of a package.json that is not valid JSON.
var scriptLine = pattern.New(`(?i)"(\w*install|prepare|\w*pack|prepublish\w*|scripts|test|build|start)"`)

func judgePackage(c *change, s *sink, l leaf) {
	top := strings.ToLower(l.path0())
	key := strings.ToLower(l.key())
	text := quote(l.where() + ": " + l.value)
	why := suspicious(l.value)
	switch {
	case top == "scripts" && why != "":
		s.add(kindScript, l.line, true, "%s: %s", why, text)
	case top == "scripts" && lifecycle[key]:
		s.add(kindScript, l.line, true, "runs at installation: %s", text)
	case top == "scripts":
		s.add(kindScript, l.line, false, "script: %s", text)
	case hookKeys[top]:
		s.add(kindHook, l.line, top != "lint-staged" && top != "nano-staged" || why != "", "hook: %s", text)
	case dependencyKeys[top] || dependencyKeys[key] || l.anyOf(dependencyKeys):
		if elsewhere.MatchString(l.value) && !strings.HasPrefix(l.value, "workspace:") && !strings.Contains(c.old, `"`+withoutRef(l.value)) {
			s.add(kindLock, l.line, true, "does not come from the registry: %s", text)
		}
	case l.anyOf(trustKeys):
		s.add(kindScript, l.line, true, "what may run at installation: %s", text)
	case top == "publishconfig", key == "registry":
		s.add(kindRegistry, l.line, key == "registry", "registry: %s", text)
	case top == "packagemanager" && !sameManager(c.old, l.value):
		s.add(kindScript, l.line, true, "another package manager is downloaded and run: %s", text)
	case top == "gypfile" || top == "binary" && strings.Contains(l.value, "://"):
		s.add(kindScript, l.line, true, "runs at installation: %s", text)
	case why != "" && top != "description" && top != "keywords":
		s.add(kindScript, l.line, true, "%s: %s", why, text)
	}
}

// withoutRef is a dependency without its version: the same place as in base is no new source.
func withoutRef(spec string) string {
	spec, _, _ = strings.Cut(spec, "#")
	if i := strings.LastIndexByte(spec, '@'); i > len("npm:@") && !strings.Contains(spec[i:], "/") {
		spec = spec[:i]
	}
	return spec
}

// path0 is the topmost key.
func (l leaf) path0() string {
	if len(l.path) == 0 {
		return ""
	}
	return l.path[0]
}

func (l leaf) anyOf(set map[string]bool) bool {
	for _, p := range l.path {
		if set[strings.ToLower(p)] {
			return true
		}
	}
	return false
}

// sameManager: only the version of the package manager changed.
func sameManager(old, value string) bool {
	name, version, _ := strings.Cut(value, "@")
	return !strings.Contains(version, "://") && strings.Contains(old, `"`+name+`@`)
}

// checkComposer compares scripts, repositories and plugins of PHP's package manager.
func checkComposer(c *change, s *sink) {
	if c.deleted() {
		return
	}
	added, _, err := newLeaves(c, walkJSON)
	if err != nil {
		s.add(kindScript, 0, false, "it cannot be read, lines are compared")
		reportLines(c, s, kindScript, false, pattern.New(`(?i)script|-cmd|repositories|"url"`))
		return
	}
	for _, l := range added {
		text := quote(l.where() + ": " + l.value)
		why := suspicious(l.value)
		switch {
		case why != "":
			s.add(kindScript, l.line, true, "%s: %s", why, text)
		case l.path0() == "scripts" && l.anyOf(lifecycle):
			s.add(kindScript, l.line, true, "runs at installation: %s", text)
		case l.path0() == "scripts":
			s.add(kindScript, l.line, false, "script: %s", text)
		case l.path0() == "repositories" && (l.key() == "url" || strings.Contains(l.value, "://")):
			s.add(kindLock, l.line, true, "new source: %s", text)
		case l.anyOf(trustKeys), l.has("secure-http"), l.has("disable-tls"):
			s.add(kindScript, l.line, true, "what may run at installation: %s", text)
		}
	}
}

// sectionRule picks lines of a manifest in TOML, INI or a language of its own.
type sectionRule struct {
	section *pattern.Pattern // nil means any
	line    *pattern.Pattern // nil means any
	kind    string
	grave   bool
	what    string
}

func rx(s string) *pattern.Pattern { return pattern.New(`(?i)` + s) }

// manifestRules are tried in order; the first that fits a line counts.
var manifestRules = []sectionRule{
	{line: rx(`(--(extra-)?index-url|--find-links|^\s*-[if]\s|--trusted-host|--no-index)`), kind: kindRegistry, grave: true, what: "registry"},
	{line: rx(`@\s*(git\+|https?://|file:///)|^\s*["']?(-e\s+)?(git|hg|svn|bzr)\+|^\s*["']?(-e\s+)?https?://.*\.(whl|zip|tar\.gz|tgz)|\b(git|url|hg|svn)["']?\s*(=|:|=>)\s*["'](https?|git|ssh)[:@]|\bgit:\s*["']|github:\s*["']|:git\s*=>|:github\s*=>|\bgit\s*=\s*"`), kind: kindLock, grave: true, what: "does not come from the registry"},
	{section: rx(`^(tool\.uv\.(index|sources)|tool\.poetry\.source|tool\.pdm\.source|tool\.uv|source|pip)`), line: rx(`^\s*(url|index|index-url|extra-index-url|index-strategy|find-links|no-index|explicit|verify_ssl|allow-insecure-host)\s*=`), kind: kindRegistry, grave: true, what: "registry"},
	{section: rx(`^(source|registries|registry|patch|replace)\b`), kind: kindLock, grave: true, what: "source of dependencies"},
	{line: rx(`^\s*(replace\b.*=>|[\w./~-]+\s+(v\S+\s+)?=>)`), kind: kindLock, grave: true, what: "another module in the place of this one"},
	{line: rx(`^\s*(source|plugin|eval_gemfile)\s*\(?\s*['"]`), kind: kindLock, grave: true, what: "source of dependencies"},
	{section: rx(`^build-system`), line: rx(`build-backend\s*=\s*"(setuptools\.build_meta|flit_core\.buildapi|hatchling\.build|poetry\.core\.masonry\.api|pdm\.backend|maturin|scikit_build_core\.build|uv_build|mesonpy)"`), kind: kindBuild, what: "needed for the build"},
	{section: rx(`^build-system`), line: rx(`backend-path|build-backend`), kind: kindBuild, grave: true, what: "runs when the project is built"},
	{section: rx(`^build-system`), kind: kindBuild, what: "needed for the build"},
	{section: rx(`^tool\.(hatch\..*hooks?|setuptools\.(cmdclass|ext)|poetry\.build|pdm\.build|flit\..*hook|scikit-build|maturin|cibuildwheel)`), kind: kindBuild, grave: true, what: "runs when the project is built"},
	{section: rx(`^(tool\.(poe|taskipy|pdm\.scripts|hatch\.envs|tox|nox|rye\.scripts|pixi\.tasks)|package\.metadata\.(scripts|cargo-husky)|scripts|alias)`), kind: kindRecipe, what: "task"},
	{section: rx(`^package$`), line: rx(`^\s*(build|links)\s*=`), kind: kindBuild, grave: true, what: "runs when the project is built"},
	{line: rx(`^\s*(proc-macro\s*=\s*true|cmdclass|setup_hooks|\w*\.?extensions\s*(=|<<)|.*\bcmdclass\b)`), kind: kindBuild, grave: true, what: "runs when the project is built"},
	{line: rx(`\b(system|exec|popen|open-uri|eval)\s*[( ]['"` + "`" + `]|^\s*` + "`"), kind: kindBuild, grave: true, what: "starts a program"},
	{section: rx(`^tool\.pytest`), line: rx(`addopts.*-p\s`), kind: kindBuild, what: "loads a plugin"},
}

// section is the head of a part of TOML or INI.
var section = pattern.New(`^\s*\[{1,2}\s*([^\]]+?)\s*\]{1,2}\s*(#.*)?$`)

// checkManifest reports what a list of dependencies says about sources and the build.
func checkManifest(c *change, s *sink) {
	if c.deleted() {
		return
	}
	c.diff()
	if len(c.added) == 0 {
		return
	}
	part, at := "", 0
	all := splitLines(c.new)
	bound := sources(splitLines(c.old))
	for _, l := range meaning(c, c.added) {
		for ; at < l.n && at < len(all); at++ {
			if m := section.FindStringSubmatch(all[at]); m != nil {
				part = strings.NewReplacer(`"`, "", "'", "", " ", "").Replace(m[1])
			}
		}
		judgeManifest(s, l, part, bound)
	}
}

func judgeManifest(s *sink, l line, part string, bound map[string]bool) {
	if section.MatchString(l.text) {
		return // what counts stands below it
	}
	if why := suspicious(l.text); why != "" {
		s.add(kindBuild, l.n, true, "%s: %s", why, quote(l.text))
		return
	}
	for _, r := range manifestRules {
		if r.section != nil && !r.section.MatchString(part) || r.line != nil && !r.line.MatchString(l.text) {
			continue
		}
		if src := sourceOf(l.text); r.kind == kindLock && src != "" && bound[src] || r.what == "needed for the build" && bracket(l.text) {
			return // the same repository at another version
		}
		s.add(r.kind, l.n, r.grave, "%s: %s", r.what, quote(l.text))
		return
	}
}

// address finds the place in a URL, without version.
var address = pattern.New(`(?i)(?:https?|git|ssh)(?:\+\w+)?[:@]/{0,2}(?:[\w.-]+@)?[^\s"'#?,;)>\]@]+`)

func sourceOf(s string) string {
	return strings.ToLower(strings.TrimSuffix(address.FindString(s), "/"))
}

// sources are the addresses that lines name.
func sources(ls []string) map[string]bool {
	m := map[string]bool{}
	for _, l := range ls {
		if a := sourceOf(l); a != "" {
			m[a] = true
		}
	}
	return m
}
