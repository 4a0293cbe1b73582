package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestTrustOnFirstUse: the commands of a stranger's project file run when the user said yes to them, and go on to when a task goes on,
// as long as the file is the same.
func TestTrustOnFirstUse(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusTimeout, workorder.EndedByTimeout))
	own := must(os.ReadFile(r.project))
	clone, marker := t.TempDir(), filepath.Join(t.TempDir(), "marker")
	gittest.Git(t, clone, "init", "-q")
	for line := range strings.Lines(string(own)) {
		if url, ok := strings.CutPrefix(line, "repo: "); ok {
			gittest.Git(t, clone, "remote", "add", "origin", strings.TrimSpace(url))
		}
	}
	yaml := string(own) + "secrets: {STRIPE: 'cmd://touch " + marker + "; echo value'}\n"
	mine := filepath.Join(t.TempDir(), "mine.yaml")
	write(t, mine, yaml)
	r.project = filepath.Join(clone, ".sandbox-agent.yaml")
	write(t, r.project, yaml)
	ran := func(want bool) {
		t.Helper()
		err := os.Remove(marker)
		if (err == nil) != want {
			t.Errorf("its command ran: %v, want %v", err == nil, want)
		}
	}
	refused := func(args ...string) {
		t.Helper()
		r.want(workorder.ExitInvalid, "`sandbox-agent project trust "+r.project+"`", args...)
		ran(false)
	}
	refused(create()...)
	refused(ifExists()...)
	r.want(workorder.ExitInvalid, "\nerror: ", create("--dry-run")...)
	r.want(0, "secrets.STRIPE: cmd://touch "+marker, "project", "trust", "P")
	ran(false)
	r.boxes(0)
	r.want(workorder.ExitTimeout, "", create()...)
	ran(true)
	// The next attempt reads the file again.
	write(t, r.project, yaml+"# changed\n")
	refused("continue", tid)
	refused("rebase", tid)
	feedback := filepath.Join(t.TempDir(), "feedback")
	write(t, feedback, "- do better\n")
	refused("revise", tid, "--feedback-file", feedback)
	refused(ifExists()...)
	refused("continue", tid, "-p", "P")
	r.boxes(1)
	write(t, r.project, yaml)
	r.want(workorder.ExitTimeout, "", "continue", tid)
	ran(true)
	r.want(0, "", "project", "trust", "--revoke", "P")
	refused("continue", tid)
	// His own file needs no trust, and neither does its next attempt.
	r.want(workorder.ExitTimeout, "", "continue", tid, "-p", mine)
	ran(true)
	r.want(workorder.ExitTimeout, "", "continue", tid)
	ran(true)
}

// TestTrustedCommands: a command of a repository's project file has the script that it names, and nothing else of the repository.
func TestTrustedCommands(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusTimeout, workorder.EndedByTimeout))
	clone := t.TempDir()
	gittest.Git(t, clone, "init", "-q")
	yaml := string(must(os.ReadFile(r.project))) + "image: x\nsecrets: {A: 'cmd://sh ./get.sh', B: 'cmd://test \"$(ls -A)\" = get.sh && echo b'}\n"
	r.project = filepath.Join(clone, ".sandbox-agent.yaml")
	write(t, r.project, yaml)
	write(t, filepath.Join(clone, "get.sh"), "echo a\n")
	write(t, filepath.Join(clone, "Makefile"), "token:\n\ttouch marker\n")
	r.want(0, "secrets.A", "project", "trust", "P")
	r.want(workorder.ExitTimeout, "", create()...)
	// Files that a program looks for by itself were never shown to the user.
	write(t, r.project, strings.Replace(yaml, `test "$(ls -A)" = get.sh`, "make -s token", 1))
	r.want(0, "secrets.A", "project", "trust", "P")
	r.want(workorder.ExitInvalid, "B", "continue", tid)
}

// TestTrustOfOldRecords: what an older version found in a repository is not taken for named.
func TestTrustOfOldRecords(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusTimeout, workorder.EndedByTimeout))
	dir := t.TempDir()
	yaml := string(must(os.ReadFile(r.project))) + "image: x\n"
	r.project = filepath.Join(dir, ".sandbox-agent.yaml")
	write(t, r.project, yaml)
	r.want(workorder.ExitTimeout, "", create()...)
	record := filepath.Join(r.state, tid, "task.json")
	forget := func() {
		t.Helper()
		was := string(must(os.ReadFile(record)))
		old := regexp.MustCompile(`,?\s*"project_by": "named"`).ReplaceAllString(was, "")
		if old == was {
			t.Fatalf("the record does not tell:\n%s", was)
		}
		write(t, record, old)
	}
	forget()
	r.want(workorder.ExitTimeout, "", "continue", tid)
	forget()
	gittest.Git(t, dir, "init", "-q")
	r.want(workorder.ExitInvalid, "image (x)", "continue", tid)
}

// TestTrustByLink: a link in a stranger's repository to a trusted file of the user's has no part in that trust, whether the file or
// its folder is the link, and whether he is named or stands in it.
func TestTrustByLink(t *testing.T) {
	r := newRig(t, ends(workorder.StatusTimeout, workorder.EndedByTimeout))
	dir, marker := t.TempDir(), filepath.Join(t.TempDir(), "marker")
	mine, stranger := filepath.Join(dir, "mine"), filepath.Join(dir, "stranger")
	yaml := string(must(os.ReadFile(r.project))) + "secrets: {STRIPE: 'cmd://touch " + marker + "; echo value'}\n"
	for _, repo := range []string{mine, stranger} {
		write(t, filepath.Join(repo, "README"), "x")
		gittest.Git(t, repo, "init", "-q")
	}
	write(t, filepath.Join(mine, ".sandbox-agent.yaml"), yaml)
	write(t, filepath.Join(mine, ".sandbox-agent", "shop.yaml"), yaml)
	for _, name := range []string{".sandbox-agent.yaml", ".sandbox-agent"} {
		if err := os.Symlink(filepath.Join("..", "mine", name), filepath.Join(stranger, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{".sandbox-agent.yaml", ".sandbox-agent/shop.yaml"} {
		r.want(0, "secrets.STRIPE", "project", "trust", filepath.Join(mine, file))
		refused := "sandbox-agent project trust " + filepath.Join(stranger, file)
		r.want(workorder.ExitInvalid, refused, "create", "-p", filepath.Join(stranger, file), "--task", "x")
	}
	t.Chdir(stranger)
	r.want(workorder.ExitInvalid, "secrets.STRIPE", "create", "--task", "x")
	r.want(workorder.ExitInvalid, "secrets.STRIPE", "create", "-p", "shop", "--task", "x")
	if _, err := os.Stat(marker); err == nil {
		t.Error("its command ran")
	}
	r.boxes(0)
	// A yes to the link is one to the stranger's, and the user's own goes on without.
	r.want(0, filepath.Join(stranger, ".sandbox-agent.yaml"), "project", "trust")
	r.want(workorder.ExitTimeout, "", "create", "--task", "x")
	r.want(0, ".sandbox-agent.yaml", "project", "trust", "--revoke")
	r.want(workorder.ExitInvalid, "secrets.STRIPE", "create", "--task", "x")
	t.Chdir(mine)
	r.want(workorder.ExitTimeout, "", "create", "--task", "x")
}

// TestRemoteOfArchive: what an unpacked .git/config calls its remote is not reached with the user's credential, and a clone is asked nothing.
func TestRemoteOfArchive(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusTimeout, workorder.EndedByTimeout))
	yaml := string(must(os.ReadFile(r.project)))
	_, url, _ := strings.Cut(yaml, "repo: ")
	url, _, _ = strings.Cut(url, "\n")
	host := strings.Split(url, "/")[2]
	r.env = map[string]string{"SANDBOX_AGENT_GIT_TOKEN": "", "GH_HOST": host, "GH_TOKEN": "tok"}

	clone := filepath.Join(t.TempDir(), "clone")
	gittest.Git(t, t.TempDir(), "clone", "-q", r.bare, clone)
	gittest.Git(t, clone, "remote", "set-url", "origin", url)
	archive := t.TempDir()
	gittest.Git(t, archive, "init", "-q", "-b", "main")
	gittest.Git(t, archive, "commit", "-q", "--allow-empty", "-m", "of somebody else")
	gittest.Git(t, archive, "remote", "add", "origin", url)
	borrowing := filepath.Join(t.TempDir(), "borrowing")
	gittest.Git(t, t.TempDir(), "clone", "-q", "--shared", clone, borrowing)
	gittest.Git(t, borrowing, "remote", "set-url", "origin", url)

	file := func(repo string) string { return filepath.Join(repo, ".sandbox-agent.yaml") }
	for _, repo := range []string{clone, archive, borrowing} {
		write(t, file(repo), yaml)
	}
	for _, repo := range []string{archive, borrowing} {
		r.want(workorder.ExitInvalid, "repo ("+url+")", "create", "-p", file(repo), "--task", "x")
	}
	r.boxes(0)
	r.want(workorder.ExitTimeout, "", "create", "-p", file(clone), "--task", "x")
	write(t, file(clone), yaml+"# changed\n")
	r.want(workorder.ExitTimeout, "", "create", "-p", file(clone), "--task", "x")
	r.boxes(2)
	// The user's own word, be it the file's place, the repository or a yes.
	r.want(workorder.ExitTimeout, "", "create", "-p", "P", "--task", "x")
	r.want(workorder.ExitTimeout, "", "create", "-p", file(archive), "--repo", url, "--task", "x")
	r.want(0, "repo: "+url, "project", "trust", file(archive))
	r.want(workorder.ExitTimeout, "", "create", "-p", file(archive), "--task", "x")
	// Another repository's pull requests are asked about also in a clone.
	write(t, file(clone), yaml+"pr: {repository: me/private}\n")
	r.want(workorder.ExitInvalid, "pr.repository (me/private)", "create", "-p", file(clone), "--task", "x")
	r.boxes(5)
}
