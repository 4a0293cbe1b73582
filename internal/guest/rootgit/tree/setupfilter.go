package tree

import (
	"context"
	"slices"
	"strings"
)

// A tracked file that setup changed is not the agent's work either. A clean filter of the agent's git reads setup's version
// of the file as HEAD's, so that `git add -A` stages only what the agent changes further.

// setupFilter is the filter's command; .git/info/setup-versions has a line "ID_AFTER_SETUP ID_IN_HEAD" for each file.
const setupFilter = `f=$(mktemp) || exit; cat >"$f"
b=$(sed -n "s/^$(git hash-object --no-filters "$f") //p" "$(git rev-parse --git-common-dir)/info/setup-versions" 2>/dev/null | tail -n 1)
if [ -n "$b" ]; then git cat-file blob "$b"; else cat "$f"; fi
code=$?; rm -f "$f"; exit $code`

// SetupFilter names the filter in the agent's git configuration.
const SetupFilter = "filter.sandbox-agent-setup.clean"

// hideChanges makes the agent's git take the files of some entries of the record for unchanged, and returns their paths. A file with
// a filter of its own keeps that one.
func (t *WorkTree) hideChanges(ctx context.Context, entries map[string]string) (hidden []string, err error) {
	var paths []string
	for path, entry := range entries {
		// ":mode-before mode-now id-before id-now status"
		if f := strings.Fields(entry); len(f) == 5 && f[4] == "M" && strings.HasPrefix(f[1], "100") && strings.HasPrefix(f[0], ":100") {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return nil, nil
	}
	slices.Sort(paths)
	repo := t.Repos.Tree()
	repo.Stdin = strings.Join(paths, "\x00")
	out, err := repo.Output(ctx, "check-attr", "-z", "--stdin", "filter")
	if err != nil {
		return nil, err
	}
	var versions, attributes strings.Builder
	for fields := strings.Split(string(out), "\x00"); len(fields) >= 3; fields = fields[3:] {
		path, filter := fields[0], fields[2]
		if filter != "unspecified" && filter != "sandbox-agent-setup" {
			continue
		}
		f := strings.Fields(entries[path])
		hidden = append(hidden, path)
		versions.WriteString(f[3] + " " + f[2] + "\n")
		attributes.WriteString(`"` + attributeQuoter.Replace("/"+excludable.Replace(path)) + "\" filter=sandbox-agent-setup\n")
	}
	if len(hidden) == 0 {
		return nil, nil
	}
	if _, err := t.shell(ctx, "mkdir -p .git/info && cat >>.git/info/setup-versions", versions.String()); err != nil {
		return nil, err
	}
	if _, err := t.shell(ctx, "cat >>.git/info/attributes", attributes.String()); err != nil {
		return nil, err
	}
	repo.Stdin = ""
	if err := repo.Run(ctx, "config", "--local", SetupFilter, setupFilter); err != nil {
		return nil, err
	}
	// git takes a file of another size for changed, without the filter, until the index has the new size.
	repo.Stdin = strings.Join(hidden, "\x00") + "\x00"
	return hidden, repo.Run(ctx, "update-index", "-z", "--stdin")
}

// attributeQuoter quotes a pattern of a file of attributes as a string of C.
var attributeQuoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
