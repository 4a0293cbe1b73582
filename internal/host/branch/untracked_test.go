package branch_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// plain is a repository with one commit, and a function that commits files on the work's branch: text by path, "" for none, and a link for a text that begins with "-> ".
func plain(t *testing.T, base, work map[string]string) (dir string, w branch.Source) {
	t.Helper()
	dir = t.TempDir()
	git := func(args ...string) string { t.Helper(); return gittest.Git(t, dir, args...) }
	commit := func(files map[string]string) string {
		t.Helper()
		for name, text := range files {
			if text == "" {
				git("rm", "-q", "-r", "--cached", name)
				continue
			}
			mode, of := "100644", text
			if link, ok := cutLink(text); ok {
				mode, of = "120000", link
			}
			id := gittest.Git(t, dir, "hash-object", "-w", blob(t, of))
			if text == "submodule" {
				mode, id = "160000", "1234567890123456789012345678901234567890"
			}
			git("update-index", "--add", "--replace", "--cacheinfo", mode+","+id+","+name)
		}
		git("commit", "-q", "--allow-empty", "-m", "x")
		return git("rev-parse", "HEAD")
	}
	git("init", "-q", "-b", "main")
	git("config", "user.name", "Ada") // the machine may know no user
	git("config", "user.email", "ada@example.com")
	w = branch.Source{Of: "sandbox x", Branch: taskBranch, Repo: dir, Base: commit(base)}
	git("symbolic-ref", "HEAD", "refs/heads/work")
	git("update-ref", "HEAD", w.Base)
	w.Head = commit(work)
	git("symbolic-ref", "HEAD", "refs/heads/main")
	git("reset", "-q", "--hard")
	return dir, w
}

func cutLink(text string) (string, bool) {
	if len(text) > 3 && text[:3] == "-> " {
		return text[3:], true
	}
	return "", false
}

func blob(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "blob")
	write(t, path, text)
	return path
}

// What the user has and git does not track is never overwritten, also where a rule ignores it.
func TestUntrackedIsKept(t *testing.T) {
	t.Parallel()
	type files = map[string]string
	for name, c := range map[string]struct {
		base, work files
		mine       string // the user's file, which no commit has
		link       string // that is a link to
		free       bool   // nothing is in the way
		conflicts  bool   // the sides conflict
		here       files  // committed on main, after the work began
	}{
		"ignored file":                            {work: files{".env": "theirs"}, mine: ".env"},
		"ignored by a rule of the work":           {work: files{"new": "theirs", ".gitignore": "new\n"}, mine: "new"},
		"in an ignored folder":                    {work: files{"build/out/x": "theirs"}, mine: "build/out/x"},
		"an ignored folder for a file":            {work: files{"build": "theirs"}, mine: "build/out/x"},
		"an ignored file for a folder":            {work: files{"build/out/x": "theirs"}, mine: "build"},
		"a link for a folder":                     {work: files{"build/out/x": "theirs"}, mine: "build", link: ".."},
		"a link for a file":                       {work: files{"build": "theirs"}, mine: "build", link: "nowhere"},
		"a folder with tracked files, too":        {base: files{"d/a": "a"}, work: files{"d": "theirs"}, mine: "d/mine"},
		"a submodule that becomes a file":         {base: files{"s": "submodule"}, work: files{"s": "theirs"}, mine: "s/mine"},
		"a submodule that becomes a folder":       {base: files{"s": "submodule"}, work: files{"s/mine": "theirs"}, mine: "s/mine"},
		"a conflict about what is untracked here": {base: files{"k": "k"}, work: files{"k": "theirs"}, mine: "k", conflicts: true, here: files{"k": ""}},
		"untracked here, the same there":          {base: files{"k": "k"}, work: files{"new": "theirs"}, mine: "k", free: true, here: files{"k": ""}},
		"beside":                                  {work: files{"build/x": "theirs"}, mine: "build/y", free: true},
		"a folder for a submodule":                {work: files{"s": "submodule"}, mine: "s/mine", free: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, w := plain(t, c.base, c.work)
			for name := range c.here {
				gittest.Git(t, dir, "rm", "-q", "--cached", name)
				gittest.Git(t, dir, "commit", "-q", "-m", "here")
			}
			write(t, filepath.Join(dir, ".git", "info", "exclude"), "/.env\n/build\n/d/mine\n/k\n/s/mine\n")
			mine := filepath.Join(dir, c.mine)
			if err := os.MkdirAll(filepath.Dir(mine), 0o700); err != nil {
				t.Fatal(err)
			}
			if c.link != "" {
				if err := os.Symlink(c.link, mine); err != nil {
					t.Fatal(err)
				}
			} else {
				write(t, mine, "mine\n")
			}
			before := gittest.Git(t, dir, "rev-parse", "HEAD")
			verbs := map[string]func() error{
				"apply":    func() error { _, err := target(t, w, "/").Apply(t.Context()); return err },
				"merge":    func() error { _, err := target(t, w, "/").Merge(t.Context(), "m"); return err },
				"checkout": func() error { _, err := target(t, w, "/").Checkout(t.Context()); return err },
			}
			for _, verb := range []string{"apply", "merge", "checkout"} {
				if c.free && verb == "checkout" && c.base["k"] != "" {
					continue // there the file is of the branch
				}
				err := verbs[verb]()
				refused := exiterr.Code(err) == workorder.ExitGit && errors.Is(err, branch.ErrUntracked)
				if c.conflicts && verb == "apply" {
					refused = errors.Is(err, branch.ErrConflict)
				}
				if !c.free && !refused || c.free && err != nil {
					t.Errorf("%s: %v", verb, err)
				}
				if to, _ := os.Readlink(mine); to != c.link || c.link == "" && read(t, mine) != "mine\n" {
					t.Fatalf("%s: lost", verb)
				}
				if c.free {
					gittest.Git(t, dir, "reset", "-q", "--hard", before)
				} else if gittest.Git(t, dir, "diff", "HEAD", "--stat") != "" {
					t.Errorf("%s: something was touched", verb)
				}
			}
		})
	}
}

// A merge puts the user's changes aside and brings them back: nothing that it cannot bring back is touched.
func TestMergeKeepsAll(t *testing.T) {
	t.Parallel()
	base := map[string]string{"config": "conf\n", "trk/t": "t\n", "f": "f\n", ".gitignore": "*.log\n", "s": "submodule"}
	for name, c := range map[string]struct {
		script string
		work   map[string]string
		file   string // that must not change
		free   bool
	}{
		"a folder for a tracked file":         {script: "rm config; mkdir config; echo mine >config/new", file: "config/new"},
		"a repository for a tracked file":     {script: "rm config; git init -q config; echo mine >config/new", file: "config/new"},
		"ignored files for a tracked file":    {script: "rm config; mkdir config; echo mine >config/x.log", file: "config/x.log"},
		"a file for a tracked folder":         {script: "rm -r trk; echo mine >trk", file: "trk"},
		"an ignored file for a removed one":   {script: "git rm -qr trk; echo mine >trk; echo trk >>.git/info/exclude", file: "trk"},
		"a file that the index lacks":         {script: "git rm -q --cached f; echo mine >f", file: "f"},
		"staged, then a folder":               {script: "echo x >n; git add n; rm n; mkdir n; echo mine >n/x", file: "n/x"},
		"assumed to be unchanged":             {script: "git update-index --assume-unchanged f; echo mine >f", file: "f"},
		"assumed, and in the work":            {script: "git update-index --assume-unchanged f; echo mine >f", work: map[string]string{"f": "theirs\n"}, file: "f"},
		"assumed, and not changed":            {script: "git update-index --assume-unchanged f; touch f; echo mine >u", file: "u", free: true},
		"changed":                             {script: "echo mine >f", file: "f", free: true},
		"changed and staged":                  {script: "echo mine >f; git add f; echo mine >n; git add n", file: "n", free: true},
		"a link for a file":                   {script: "ln -sf config f; echo mine >config", file: "f", free: true},
		"removed":                             {script: "rm -r trk config; echo mine >f", file: "f", free: true},
		"files in a submodule's folder":       {script: "echo mine >s/mine", file: "s/mine", free: true},
		"untracked beside what is removed":    {script: "rm trk/t; echo mine >trk/mine", file: "trk/mine", free: true},
		"a folder of untracked for a removed": {script: "rm config; mkdir config; echo mine >f", file: "f", free: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := c.work
			if work == nil {
				work = map[string]string{"new": "theirs\n"}
			}
			dir, w := plain(t, base, work)
			sh(t, dir, "mkdir -p s; "+c.script)
			_, err := target(t, w, "/").Merge(t.Context(), "m")
			if c.free != (err == nil) || !c.free && !errors.Is(err, branch.ErrUntracked) {
				t.Errorf("%v", err)
			}
			if read(t, filepath.Join(dir, filepath.FromSlash(c.file))) != "mine\n" {
				t.Error("lost")
			}
		})
	}
}

func sh(t *testing.T, dir, script string) {
	t.Helper()
	if out, err := proc.Output(t.Context(), proc.Spec{Argv: []string{"sh", "-ec", script}, Dir: dir}); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
}
