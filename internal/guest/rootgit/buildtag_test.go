//go:build !nightly

package rootgit

import (
	"slices"
	"testing"
)

// nightlyRows has the rows that repeat a promise of another row with other values, by test.
var nightlyRows = map[string][]string{
	"TestSecretsAreNotPushed": {
		"in a branch's name, in hexadecimal", "in a branch's name, with a slash", "in a branch's name that is too long",
		"in a path, allowed", "in a path of a file whose content is known", "in a path of the base already", "in an uncommitted path",
		"in the name of a branch that is the only one moved", "in a tag's name", "in the base already", "in an older commit", "short",
	},
	"TestSettingsThatHide": {"another case", "file is a folder", "folder is a link", "odd names", "the base has none"},
	"TestHostileRepositories": {
		"another git folder",
		"another remote",
		"another work tree",
		"hooks path",
		"alternates that are a secret",
		"names of refs",
		"a filter that is a process",
	},
	"TestGitBesideForeignSettings": {"branch and merge", "stash", "soft reset", "cherry-pick"},
	"TestConflictsAreKnown": {
		"am -3",
		"cherry-picks",
		"merge, deleted",
		"popped, reset",
		"rebase, edited",
		"several files",
		"revert",
	},
	"TestIfExists":              {"done, continue", "done, refuse", "done, tell a continue", "cut off, no word"},
	"TestResolvedRebase":        {"quit", "not on it", "staged"},
	"TestSabotagedRepositories": {"a pipe as config", "a pipe as index", "core.worktree", "garbage as config", "garbage as packed"},
}

// nightlyOnly reports whether only `make nightly` runs the row.
func nightlyOnly(t *testing.T, row string) bool {
	t.Helper()
	return slices.Contains(nightlyRows[t.Name()], row)
}
