package tree

import (
	"context"
	"fmt"
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

const setupFilterName = "sandbox-agent-setup"

// SetupFilter is the key of the filter in the agent's git configuration.
const SetupFilter = "filter." + setupFilterName + ".clean"

// hideChanges makes the agent's git take the files of some entries of the record for unchanged, and returns their paths. A file with
// a filter of its own keeps that one.
func (t *WorkTree) hideChanges(ctx context.Context, entries map[string]string) (hidden []string, err error) {
	var paths []string
	for path, entry := range entries {
		// ":mode-before mode-now id-before id-now status"
		f := strings.Fields(entry)
		if len(f) == 5 && f[4] == "M" && strings.HasPrefix(f[1], "100") && ":"+f[1] == f[0] && !strings.Contains(path, "\n") {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return nil, nil
	}
	slices.Sort(paths)
	repo := t.Repos.Tree()
	repo.Stdin = strings.Join(paths, "\x00")
	converted := map[string]bool{}
	out, err := repo.Output(ctx, "check-attr", "-z", "--stdin", "filter", "working-tree-encoding")
	if err != nil {
		return nil, err
	}
	for fields := strings.Split(string(out), "\x00"); len(fields) >= 3; fields = fields[3:] {
		if v := fields[2]; v != "unspecified" && v != setupFilterName {
			converted[fields[0]] = true
		}
	}
	if hidden = slices.DeleteFunc(paths, func(path string) bool { return converted[path] }); len(hidden) == 0 {
		return nil, nil
	}
	repo.Stdin = "./" + strings.Join(hidden, "\n./") + "\n"
	if out, err = repo.Output(ctx, "hash-object", "--no-filters", "--stdin-paths"); err != nil {
		return nil, err
	}
	ids := strings.Fields(string(out))
	if len(ids) != len(hidden) {
		return nil, fmt.Errorf("git hash-object: %d ids of %d files", len(ids), len(hidden))
	}
	var versions, attributes strings.Builder
	for i, path := range hidden {
		versions.WriteString(ids[i] + " " + strings.Fields(entries[path])[2] + "\n")
		attributes.WriteString(`"` + attributeQuoter.Replace("/"+excludable.Replace(path)) + "\" filter=" + setupFilterName + "\n")
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
	if err := repo.Run(ctx, "update-index", "-z", "--stdin"); err != nil {
		return nil, err
	}
	left, err := t.unstageSetup(ctx, entries)
	return slices.DeleteFunc(hidden, func(path string) bool { return left[path] }), err
}

// unstageSetup restores HEAD's entries in the agent's index for the paths of the record that differ there, and returns these.
func (t *WorkTree) unstageSetup(ctx context.Context, entries map[string]string) (map[string]bool, error) {
	repo, staged := t.Repos.Tree(), map[string]bool{}
	var info strings.Builder
	if err := repo.Each(ctx, func(path string) {
		if f := strings.Fields(strings.TrimPrefix(entries[path], ":")); len(f) == 5 {
			staged[path] = true
			info.WriteString(strings.TrimPrefix(f[0], "00000") + " " + f[2] + "\t" + path + "\x00")
		}
	}, "diff-index", "--cached", "--name-only", "--no-renames", "-z", "HEAD", "--"); err != nil || len(staged) == 0 {
		return nil, err
	}
	repo.Stdin = info.String()
	return staged, repo.Run(ctx, "update-index", "--replace", "-z", "--index-info")
}

// clearFlags removes the flags with which setup made git ignore changes of files that exist.
func (t *WorkTree) clearFlags(ctx context.Context) error {
	repo, l := t.Repos.Tree(), t.newPathReader()
	var flagged []string
	if err := repo.Each(ctx, func(rec string) {
		letter, path, _ := strings.Cut(rec, " ")
		if letter != "S" && letter == strings.ToUpper(letter) {
			return
		}
		if _, is := l.look(path, false); is {
			flagged = append(flagged, path)
		}
	}, "ls-files", "-v", "-z"); err != nil {
		return err
	}
	for _, flag := range []string{"--no-assume-unchanged", "--no-skip-worktree"} {
		if len(flagged) == 0 {
			break
		}
		repo.Stdin = strings.Join(flagged, "\x00") + "\x00"
		if err := repo.Run(ctx, "update-index", flag, "-z", "--stdin"); err != nil {
			return err
		}
	}
	return nil
}

// attributeQuoter quotes a pattern of a file of attributes as a string of C.
var attributeQuoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
