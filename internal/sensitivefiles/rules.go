package sensitivefiles

import (
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/internal/agentkind"
)

// KindSecret is the kind of findings that a caller adds: this package does not know the values of secrets.
const KindSecret = "secret"

// rule is a kind of sensitive path. The rules stand in the order of a report.
type rule struct {
	kind   string
	severe bool   // a reviewer should look at it before anything else
	why    string // why a reviewer should look at it
	// paths are patterns in lower case. A leading "/" is the root of the repository, a trailing "/**" stands for everything
	// below, and each name in between has at most one star. The first rule with a matching pattern counts.
	paths []string
}

// Rules without patterns, by their index in rules.
const (
	submodule = iota
	symlink
	hiddenName
	program
	executable
	binary
)

const (
	whyUnasked     = "it runs without being asked for"
	whyEnvironment = "shells and version managers read it"
)

var rules = []rule{
	submodule:  {kind: "submodule", severe: true, why: "a submodule is code from another repository"},
	symlink:    {kind: "symlink", severe: true, why: "it is read and written through"},
	hiddenName: {kind: "invisible", severe: true, why: "its name has characters that are not shown"},
	program:    {kind: "binary", severe: true, why: "it can be run as a program and cannot be read in a review"},
	executable: {kind: "mode", why: "it can be run as a program"},
	binary:     {kind: "binary", why: "it cannot be read in a review"},
	{kind: "workflow", severe: true, why: "CI runs it, often with secrets and write access", paths: []string{
		"/.github/workflows/**", ".github/actions/**", "action.yml", "action.yaml", "/.forgejo/**", "/.gitea/**", "/.ci/**",
		"*.gitlab-ci.yml", "/.gitlab/**", "/.circleci/**", "/.azure-pipelines/**", "/.azuredevops/**",
		"azure-pipelines*.yml", "azure-pipelines*.yaml", "/.buildkite/**", "jenkinsfile*", "*.jenkinsfile", ".drone.yml", ".drone.yaml",
		".drone.star", ".drone.jsonnet", ".woodpecker.yml", ".woodpecker.yaml", "/.woodpecker/**", "bitbucket-pipelines.yml", ".travis.yml",
		"appveyor.yml", ".appveyor.yml", ".cirrus.yml", ".cirrus.star", "cloudbuild*.yaml", "cloudbuild*.yml", "/.semaphore/**",
		"codemagic.yaml", "/.build.yml", "/.builds/**", "buildspec*.yml", "/.tekton/**", "netlify.toml", "vercel.json",
		".readthedocs.yml", ".readthedocs.yaml", "renovate.json*",
	}},
	{kind: "hook", severe: true, why: "git and its tools run it at commit, checkout or merge", paths: []string{
		".pre-commit-config.yaml", ".pre-commit-config.yml", ".pre-commit-hooks.yaml", ".githooks/**", "git-hooks/**", "githooks/**",
		".hooks/**", ".husky/**", "lefthook.yml", "lefthook.yaml", ".lefthook.yml", ".lefthook.yaml", "lefthook-local.yml", "lefthook.toml",
		"lefthook.json", ".lefthook/**", ".overcommit.yml", ".git-hooks/**", ".huskyrc*", ".lintstagedrc*", "lint-staged.config.*",
		".simple-git-hooks.*", "simple-git-hooks.*", ".cargo-husky/**", ".captainhook.json", "captainhook.json", "grumphp.yml",
		"commitlint.config.*",
	}},
	{
		kind: "agent-settings", severe: true, why: "coding agents read it: it starts programs and grants permissions",
		paths: agentSettings,
	},
	{kind: "agent-instructions", why: "coding agents follow it", paths: agentInstructions},
	{kind: "editor", severe: true, why: "editors read it, and can start programs when the directory is opened", paths: []string{
		".vscode/**", "*.code-workspace", ".idea/**", ".run/**", "*.iml", ".fleet/**", ".vim/**", ".nvim/**", ".vimrc", ".exrc", ".nvimrc",
		".nvim.lua", ".lvimrc", ".local.vimrc", ".dir-locals.el", ".dir-locals-2.el", ".projectile", "*.sublime-project", ".nova/**",
		".theia/**", ".vs/**", ".helix/**", ".kakrc",
	}},
	{kind: "environment", severe: true, why: whyEnvironment, paths: []string{
		".envrc", "mise.toml", ".mise.toml", "mise.*.toml", ".mise.*.toml", ".mise/**", "mise/**",
		".config/mise.toml", ".rtx.toml", ".autoenv", ".autoenv.zsh", ".env.zsh", ".bashrc", ".bash_profile", ".profile", ".zshrc",
		".zshenv", ".inputrc", ".gdbinit", ".lldbinit", ".pythonrc", ".pythonstartup", ".irbrc", ".pryrc", ".rprofile", ".renviron",
		".psqlrc", ".sdkmanrc", "devbox.json", ".tmux.conf", ".curlrc", ".wgetrc", ".netrc", ".gitconfig", ".ssh/**",
	}},
	{kind: "devcontainer", severe: true, why: "it runs commands and mounts directories when the directory is opened", paths: []string{
		".devcontainer/**", ".devcontainer.json",
	}},
	{kind: "submodule", severe: true, why: "it decides where submodules come from", paths: []string{"/.gitmodules"}},
	{kind: "attributes", severe: true, why: "it names filters, and can hide files from a diff", paths: []string{".gitattributes"}},
	{kind: "registry", severe: true, why: "it decides where packages come from, and what runs with them", paths: []string{
		".npmrc", ".yarnrc", ".yarnrc.yml", "bunfig.toml", "pip.conf", "pip.ini", ".pip/**", ".pypirc", "uv.toml",
		".condarc", ".cargo/**", "nuget.config", ".nuget/**", ".gemrc", ".bundle/config", "auth.json", ".mvn/**", "settings.xml",
		".gradle/**", "init.gradle", "init.gradle.kts", ".bazelrc", ".bazeliskrc",
		".dockerconfigjson", ".docker/config.json", "go.env", ".sbtopts", ".jvmopts", "repositories.yaml", ".terraformrc", "terraform.rc",
		".ansible.cfg", "ansible.cfg", "gradle-wrapper.properties", "gradle-wrapper.jar",
	}},
	{kind: "package-script", severe: true, why: whyUnasked, paths: []string{
		".pnpmfile.cjs", ".pnpmfile.mjs", "pnpmfile.js", "pnpmfile.cjs", ".yarn/plugins/**", ".yarn/releases/**", "binding.gyp",
		"sitecustomize.py", "usercustomize.py", "*.pth",
	}},
	{kind: "package-script", why: "it can name scripts that run at installation", paths: []string{
		"package.json", "package.json5", "package.yaml", "composer.json", "deno.json", "deno.jsonc", "pnpm-workspace.yaml",
	}},
	{kind: "dependencies", why: "it decides which packages are installed", paths: []string{
		"package-lock.json", "npm-shrinkwrap.json", ".package-lock.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb",
		"deno.lock", "poetry.lock", "uv.lock", "pdm.lock", "pylock*.toml", "pipfile.lock", "cargo.lock", "go.sum", "go.work.sum",
		"composer.lock", "gemfile.lock", "gems.locked", "*.gemfile.lock", "mix.lock", "rebar.lock", "pubspec.lock", "podfile.lock",
		"package.resolved", "cartfile.resolved", "flake.lock", "conan.lock", "pixi.lock", ".terraform.lock.hcl", "packages.lock.json",
		"paket.lock", "stack.yaml.lock", "module.bazel.lock", "gradle.lockfile", "verification-metadata.xml", "conda-lock.yml",
		"cabal.project.freeze", "shard.lock", "pyproject.toml", "setup.cfg", "cargo.toml", "go.mod", "go.work", "gemfile", "gems.rb",
		"*.gemfile", "pipfile", "requirements*.txt", "requirements*.in", "constraints*.txt", "requirements/**", "*.gemspec",
		"pubspec.yaml", "mix.exs", "podfile", "package.swift", "environment.yml", "libs.versions.toml",
		"gradle.properties", "lerna.json", ".bazelversion",
	}},
	{kind: "container", why: "images are built and services started from it", paths: []string{
		"dockerfile", "dockerfile.*", "*.dockerfile", "containerfile", "containerfile.*", "docker-compose*.yml", "docker-compose*.yaml",
		"compose.yml", "compose.yaml", "compose.*.yml", "compose.*.yaml", "docker-bake.hcl", "docker-bake.json",
		"docker-bake.override.hcl",
	}},
	{kind: "build-script", why: "it runs when the project is built or installed", paths: []string{
		"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "*.gradle", "*.gradle.kts", "pom.xml",
		"maven-wrapper.properties", "build.sbt", "plugins.sbt", "cmakelists.txt", "*.cmake", "meson.build", "build.bazel", "workspace",
		"workspace.bazel", "module.bazel", "*.bzl", "*.csproj", "*.fsproj", "*.vbproj", "*.vcxproj", "*.props", "*.targets", "*.pbxproj",
		"*.nuspec", "*.xcscheme", "project.clj", "deps.edn", "build.boot", "build.xml", "ivy.xml", "build.rs", "extconf.rb", "setup.py",
		"hatch_build.py", "build.zig", "gradlew", "gradlew.bat", "mvnw", "mvnw.cmd", "buildsrc/**", "pavement.py", "conanfile.py",
		"wscript", "sconstruct", "makefile.pl", "build.pl", "configure.ac", "vite.config.*", "vitest.config.*", "webpack.config.*",
		"rollup.config.*", "babel.config.*", ".babelrc*", "jest.config.*", "eslint.config.*", ".eslintrc*", "prettier.config.*",
		".prettierrc*", "postcss.config.*", "tailwind.config.*", "next.config.*", "nuxt.config.*", "svelte.config.*", "astro.config.*",
		"metro.config.*", "playwright.config.*", "cypress.config.*", "karma.conf.*", "conftest.py", "esbuild.config.*", "tsup.config.*",
	}},
	{kind: "recipe", why: "it runs with make, just, task and similar tools", paths: []string{
		"makefile", "makefile.*", "gnumakefile", "*.mk", "*.mak", "justfile", ".justfile", "*.just", "taskfile.yml", "taskfile.yaml",
		"taskfile.*.yml", "taskfile.dist.*", "rakefile", "rakefile.rb", "*.rake", "magefile.go", "noxfile.py", "tox.ini", "fabfile.py",
		"tasks.py", "dodo.py", "gruntfile.*", "gulpfile.*", "fastfile", "earthfile", "dangerfile*", "turbo.json", "nx.json",
		"cargo-make.toml", "xtask/**",
	}},
	{kind: "environment", why: whyEnvironment, paths: []string{
		"flake.nix", "shell.nix", "default.nix", "devenv.nix", "devenv.yaml", ".tool-versions", ".node-version", ".nvmrc", ".python-version",
		".ruby-version", "rust-toolchain", "rust-toolchain.toml", "procfile", "procfile.*", "vagrantfile", "tiltfile", "skaffold.yaml",
		".gitpod.yml", ".replit", "replit.nix", ".stackblitzrc", ".codesandbox/**", ".env", ".env.*",
	}},
}

// Files of coding agents, those of sandbox-agent included. The first list counts where both match.
var (
	agentSettings = append(slices.Clone(agentkind.Settings),
		".sandbox-agent.yaml", ".sandbox-agent/**", ".claude/settings*.json", "mcp.json", ".aider*", ".amp/**", ".windsurf/**", ".roo/**",
		".roomodes", ".goose/**", ".goosehints", ".junie/**", ".claude-plugin/**", ".crush.json", "crush.json", ".zed/**",
	)
	agentInstructions = []string{
		"agents.md", "agent.md", "agents.override.md", "claude.md", "claude.local.md", "gemini.md", "qwen.md", "copilot-instructions.md",
		"*.instructions.md", ".github/instructions/**", ".github/prompts/**", ".github/agents/**", ".github/chatmodes/**", ".cursorrules",
		".cursor/**", ".windsurfrules", ".clinerules", ".clinerules/**", ".claude/**", ".gemini/**", "llms.txt", "skill.md", ".agents/**",
		"conventions.md",
	}
)

// pathPattern is a pattern of a rule, split at its slashes.
type pathPattern struct {
	rule         int
	rooted, tree bool // a leading "/", a trailing "/**"
	names        []string
}

var patterns = sync.OnceValue(func() (all []pathPattern) {
	for i, r := range rules {
		for _, s := range r.paths {
			p := pathPattern{rule: i}
			s, p.rooted = strings.CutPrefix(s, "/")
			s, p.tree = strings.CutSuffix(s, "/**")
			p.names = strings.Split(s, "/")
			all = append(all, p)
		}
	}
	return all
})

// classify returns the index of the first rule with a pattern that matches a path, and -1 without one. Case does not
// count: some file systems do not tell names apart by it.
func classify(name string) int {
	names := strings.Split(strings.ToLower(name), "/")
	for _, p := range patterns() {
		if p.matches(names) {
			return p.rule
		}
	}
	return -1
}

func (p *pathPattern) matches(names []string) bool {
	if !p.tree {
		return p.matchesEnd(names)
	}
	for end := len(p.names); end < len(names); end++ {
		if p.matchesEnd(names[:end]) {
			return true
		}
	}
	return false
}

// matchesEnd compares the pattern with the last of the names.
func (p *pathPattern) matchesEnd(names []string) bool {
	start := len(names) - len(p.names)
	if start < 0 || p.rooted && start > 0 {
		return false
	}
	for i, want := range slices.Backward(p.names) {
		if !matchesName(want, names[start+i]) {
			return false
		}
	}
	return true
}

// matchesName is path.Match for at most one star, which a change of 50,000 paths needs to be fast.
func matchesName(pattern, name string) bool {
	before, after, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == name
	}
	return len(name) >= len(before)+len(after) && strings.HasPrefix(name, before) && strings.HasSuffix(name, after)
}

// media reports whether a file is named as a picture, a sound, a font or a document.
func media(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif", ".bmp", ".tiff", ".ico", ".psd", ".pdf",
		".mp3", ".ogg", ".wav", ".mp4", ".webm", ".mov", ".ttf", ".otf", ".woff", ".woff2":
		return true
	}
	return false
}
