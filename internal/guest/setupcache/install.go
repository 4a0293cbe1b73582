package setupcache

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// installs match commands whose result depends only on the files in a key, without other arguments.
var installs = []*lazyregexp.Pattern{
	lazyregexp.New(`^cd [A-Za-z0-9_./-]+$`),
	lazyregexp.New(
		`^npm (ci|i|install)( --(no-audit|no-fund|ignore-scripts|prefer-offline|legacy-peer-deps|include=dev|omit=optional))*$`,
	),
	lazyregexp.New(`^pnpm (i|install)( --(frozen-lockfile|no-frozen-lockfile|prefer-offline|ignore-scripts))*$`),
	lazyregexp.New(`^yarn( install)?( --(frozen-lockfile|immutable|prefer-offline|ignore-scripts|non-interactive))*$`),
	lazyregexp.New(`^bun (i|install)( --frozen-lockfile)?$`),
	lazyregexp.New(`^go mod download( -x)?$`),
	lazyregexp.New(`^uv sync( --(frozen|locked|all-extras|all-groups|dev|group [a-z]+))*$`),
	lazyregexp.New(`^poetry install( --(no-interaction|no-root|all-extras|sync))*$`),
	lazyregexp.New(
		`^(python3? -m |(\$HOME/)?[A-Za-z0-9_./-]*/bin/)?pip3? install( --(user|no-cache-dir|quiet|break-system-packages))*( (-r ` +
			`[A-Za-z0-9_./-]*requirements[A-Za-z0-9_.-]*\.txt|pytest|uv|poetry))+$`,
	),
	lazyregexp.New(`^python3? -m venv (\$HOME/)?[A-Za-z0-9_./-]+$`),
	lazyregexp.New(`^bundle (install( --quiet)?|config set --global path "[$A-Za-z0-9_./-]+")$`),
	lazyregexp.New(`^cargo fetch( --locked)?$`),
	lazyregexp.New(`^composer install( --(no-interaction|no-progress|no-scripts|prefer-dist|quiet))*$`),
}

// managers run commands of a manifest while they install.
var managers = lazyregexp.New(`(^|&& *)(npm|pnpm|yarn|bun|composer)\b`)

// assignments before a command set variables to constant values.
var assignments = lazyregexp.New(`^([A-Z_]+=("[A-Za-z0-9_./:$-]*"|(\$HOME/)?[A-Za-z0-9_./:-]*) )+`)

// installsOnly reports whether a setup command only installs what the key's files name.
func (c Commit) installsOnly(command string) bool {
	if c.Scripts && managers.MatchString(command) {
		return false
	}
	for part := range strings.SplitSeq(command, "&&") {
		part = assignments.ReplaceAllString(strings.Join(strings.Fields(part), " "), "")
		if !slices.ContainsFunc(installs, func(r *lazyregexp.Pattern) bool { return r.MatchString(part) }) {
			return false
		}
	}
	return true
}

// lifecycle lists scripts that an installation runs in the project's own directories.
var lifecycle = []string{
	"preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare", "dependencies",
	"pre-install-cmd", "post-install-cmd", "pre-update-cmd", "post-update-cmd", "post-autoload-dump", "pre-autoload-dump",
}

// maxManifest bounds a manifest, in bytes, and maxManifests their number: larger ones count as having scripts.
const (
	maxManifest  = 1 << 20
	maxManifests = 500
)

// scripted reports whether any of the manifests has a script that an installation runs.
func scripted(ctx context.Context, repo git.Repo, ids []string) (bool, error) {
	if len(ids) > maxManifests {
		return true, nil
	}
	for _, id := range ids {
		b, err := repo.Output(ctx, "cat-file", "blob", id)
		if err != nil {
			return false, fmt.Errorf("read a manifest: %w", err)
		}
		var m struct {
			Scripts map[string]json.RawMessage `json:"scripts"`
		}
		if len(b) > maxManifest || json.Unmarshal(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")), &m) != nil {
			return true, nil
		}
		for name := range m.Scripts {
			if slices.Contains(lifecycle, name) {
				return true, nil
			}
		}
	}
	return false, nil
}
