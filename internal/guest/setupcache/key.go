package setupcache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Commit holds the properties of a commit that setup depends on.
type Commit struct {
	Key  string // digest of the box's description and of the files that name dependencies
	Tree string // id of the tree
	// Scripts reports that a manifest names commands which an installation runs: they may read any file.
	Scripts bool
}

// keyInputs are the properties of a box that setup depends on, in addition to the commit.
type keyInputs struct {
	Setup    []string
	Packages []string
	Tools    map[string]string
	Env      map[string]string
	Services []workorder.Service
	Supabase bool
	Files    []string // mode, id and path of each
}

// Look computes a commit's key. repo is a repository of root that has the commit.
func Look(ctx context.Context, repo git.Repo, commit string, spec *workorder.BoxSpec) (Commit, error) {
	out, err := repo.Output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{tree}")
	if err != nil {
		return Commit{}, fmt.Errorf("list the files of %.12s: %w", commit, err)
	}
	tree := strings.TrimSpace(string(out))
	in := keyInputs{
		Setup: spec.Setup, Packages: spec.Packages, Tools: spec.Tools, Env: spec.Env,
		Services: spec.Services, Supabase: spec.Supabase,
	}
	var manifests []string // ids
	err = repo.Each(ctx, func(rec string) {
		meta, name, _ := strings.Cut(rec, "\t")
		if !names(name) {
			return
		}
		in.Files = append(in.Files, rec)
		if base := path.Base(name); base == "package.json" || base == "composer.json" {
			if f := strings.Fields(meta); len(f) >= 3 && f[1] == "blob" { // a submodule can have any name
				manifests = append(manifests, f[2])
			}
		}
	}, "ls-tree", "-r", "-z", "--full-tree", tree)
	if err != nil {
		return Commit{}, fmt.Errorf("list the files of %.12s: %w", commit, err)
	}
	b, err := json.Marshal(in)
	if err != nil {
		return Commit{}, err
	}
	c := Commit{Key: sum(string(b)), Tree: tree}
	c.Scripts, err = scripted(ctx, repo, manifests)
	return c, err
}

// sum returns a short digest of texts, in order.
func sum(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%d:%s", len(t), t)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// files name a project's dependencies, or the versions of its tools. A leading star makes a suffix.
var files = []string{
	"package.json", "package-lock.json", "npm-shrinkwrap.json", ".npmrc", "yarn.lock", ".yarnrc", ".yarnrc.yml", "pnpm-lock.yaml",
	"pnpm-workspace.yaml", ".pnpmfile.cjs", "bun.lock", "bun.lockb", "bunfig.toml", "deno.json", "deno.jsonc", "deno.lock", "go.mod", "go.sum",
	"go.work", "go.work.sum", "*requirements.txt", "requirements-dev.txt", "requirements-test.txt", "constraints.txt", "pyproject.toml",
	"poetry.lock", "uv.lock", "Pipfile", "Pipfile.lock", "setup.py", "setup.cfg", "environment.yml", "pylock.toml", "Cargo.toml", "Cargo.lock",
	"rust-toolchain", "rust-toolchain.toml", "pom.xml", "*.gradle", "*.gradle.kts", "gradle.properties", "gradle.lockfile",
	"libs.versions.toml", "gradle-wrapper.properties", "Gemfile", "Gemfile.lock", "*.gemspec", "composer.json", "composer.lock", "mix.exs",
	"mix.lock", ".tool-versions", "mise.toml", ".mise.toml", ".nvmrc", ".node-version", ".python-version", ".ruby-version", ".java-version",
}

// appliedDirs contain files that package managers apply or run.
var appliedDirs = []string{"patches", ".yarn", ".mvn", "requirements", "buildSrc"}

// names reports whether setup depends on a file of a tree.
func names(name string) bool {
	base := path.Base(name)
	for _, f := range files {
		if end, suffix := strings.CutPrefix(f, "*"); base == f || suffix && strings.HasSuffix(base, end) {
			return true
		}
	}
	for dir := path.Dir(name); dir != "." && dir != "/"; dir = path.Dir(dir) {
		if slices.Contains(appliedDirs, path.Base(dir)) {
			return true
		}
	}
	return false
}
