//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// onlyCommits keeps everything but the push that follows a commit out of a test.
const onlyCommits = "checkpoint_interval: 10m\npush_interval: 10m\n"

// Commits beside the agent's branch are saved too; the next agent is told where its stash is, and can take it
// over with the command that it is told.
func TestSideBranchOutlivesTheBox(t *testing.T) {
	t.Parallel()
	k := newKept(t, map[string]string{"file": "x\n"})
	u := k.machine(t)
	s := k.begin(u, k.project(u, "", `
git checkout -q -b side && echo 1 >one && git add one && git commit -qm one && git checkout -q -
echo changed >>file && git stash -q
echo >zz-last
echo agent-is-busy
sleep 600`))
	k.holds(t, workorder.CheckpointRef(k.id), "zz-last")
	// A save that began before the branch or the stash was made has the files and not these; the next one has all.
	k.holds(t, workorder.KeptRef(k.id, "side"), "one")
	k.holds(t, workorder.KeptRef(k.id, "stash"), "file")
	k.kill(t)
	s.wait()
	if k.ref(t, workorder.KeptRef(k.id, "side")) == "" || k.ref(t, workorder.KeptRef(k.id, "stash")) == "" {
		t.Errorf("kept are only %s", gittest.Git(t, k.bare, "for-each-ref", "--format=%(refname)"))
	}
	// The second box's agent is not there to tidy up: what it does not have is no reason to remove it.
	c := u.run("", "continue", k.id, "-p", k.project(u, "", `
test "$(cat file)" = x || exit 9
ref=$(grep -o 'refs/sandbox-agent/.*/heads/stash$' "$SANDBOX_AGENT_PROMPT_FILE") || exit 10
grep -q 'git stash apply FETCH_HEAD' "$SANDBOX_AGENT_PROMPT_FILE" || exit 11
git fetch -q origin "$ref" && git stash apply -q FETCH_HEAD
`))
	r := k.ended(u, c, workorder.StatusSuccess, workorder.EndedByAgent)
	if got := k.show(t, r.Branch, "file"); got != "x\nchanged" {
		t.Errorf("the branch has %q", got)
	}
	if got := k.show(t, workorder.KeptRef(k.id, "side"), "one"); got != "1" {
		t.Errorf("the side branch has %q", got)
	}
	if got := k.show(t, workorder.KeptRef(k.id, "stash"), "file"); got != "x\nchanged" {
		t.Errorf("the stash has %q", got)
	}
}

// The agent rewrites its own branch; the remote follows, and has what was there before as well.
func TestRemoteFollowsRewrittenHistory(t *testing.T) {
	t.Parallel()
	k := newKept(t, nil)
	u := k.machine(t)
	s := k.begin(u, k.project(u, onlyCommits, `
for f in a b c; do echo $f >$f && git add $f && git commit -qm $f; done
echo agent-is-busy
`+await("amend")+`echo more >>c && git commit -qa --amend -m "c amended"
`+await("rebase")+`GIT_SEQUENCE_EDITOR="sed -i '1{h;d};2{G}'" git rebase -q -i HEAD~2 && git commit -q --amend -m "b last"
`+await("end")))
	k.at(t, "c")
	first := k.ref(t, workorder.BranchRef(k.branch(t)))
	k.tell(t, "amend")
	k.at(t, "c amended")
	k.tell(t, "rebase")
	k.at(t, "b last")
	k.tell(t, "end")
	r := k.ended(u, s.wait(), workorder.StatusSuccess, workorder.EndedByAgent)
	var subjects []string
	for _, c := range r.Commits {
		subjects = append(subjects, c.Subject)
	}
	if want := []string{"b last", "c amended", "a"}; !slices.Equal(subjects, want) {
		t.Errorf("commits %q, want %q", subjects, want)
	}
	kept := gittest.Git(t, k.bare, "for-each-ref", "--format=%(objectname)", workorder.KeptRef(k.id, ""))
	if !strings.Contains(kept, first) {
		t.Errorf("the commit that was amended is not kept: %s", kept)
	}
}

// Somebody else pushes to the agent's branch: it is theirs from then on, and the
// agent's commits are kept beside it.
func TestForeignPushIsNotOverwritten(t *testing.T) {
	t.Parallel()
	k := newKept(t, map[string]string{"file": "x\n"})
	u := k.machine(t)
	s := k.begin(u, k.project(u, "", "echo 1 >one && git add one && git commit -qm one\necho agent-is-busy\n"+
		await("commit")+"echo 2 >two && git add two && git commit -qm two && echo 3 >three\n"+await("end")))
	k.at(t, "one")
	branch := k.branch(t)
	theirs := t.TempDir()
	gittest.Git(t, theirs, "clone", "-q", "-b", branch, k.bare, ".")
	gittest.Git(t, theirs, "commit", "-q", "--allow-empty", "-m", "somebody's")
	gittest.Git(t, theirs, "push", "-q", "origin", branch)
	foreign := k.ref(t, workorder.BranchRef(branch))
	k.tell(t, "commit")
	// While the box runs: the checkpoint is on top of the agent's own commit.
	k.holds(t, workorder.CheckpointRef(k.id), "three")
	k.tell(t, "end")
	c := s.wait()
	r := u.result(k.id)
	k.valid(u, r)
	if r.Status != workorder.StatusError || r.EndedBy != workorder.EndedByGit || c.code != workorder.ExitGit || !r.Reasons.Has(workorder.ReasonPush) {
		t.Errorf("exit code %d, %s by %s: %s", c.code, r.Status, r.EndedBy, r.Reasons)
	}
	if got := k.ref(t, workorder.BranchRef(branch)); got != foreign {
		t.Errorf("the branch was moved from %s to %s", foreign, got)
	}
	beside := workorder.KeptRef(k.id, branch)
	if k.ref(t, beside) != r.HeadSHA || k.show(t, beside, "two") != "2" || k.show(t, beside, "three") != "3" {
		t.Errorf("%s is at %q, the agent's head was %s", beside, k.ref(t, beside), r.HeadSHA)
	}
	if !strings.Contains(strings.Join(r.Warnings, "\n"), beside) {
		t.Errorf("no warning says where the commits are: %q", r.Warnings)
	}
	if st := k.state(t); st.Lease != nil || st.Last().Status != workorder.StatusError || st.Last().EndedBy != workorder.EndedByGit {
		t.Errorf("the remote says %+v, lease %+v", st.Last(), st.Lease)
	}

	// The next box begins with theirs, and is told of the rest.
	c = u.run("", "continue", k.id, "-p", k.project(u, "", `grep -q "heads/" "$SANDBOX_AGENT_PROMPT_FILE" && echo "print told"
git merge-base --is-ancestor `+foreign+` HEAD && echo 4 >four`))
	k.ended(u, c, workorder.StatusSuccess, workorder.EndedByAgent)
	if len(c.printed("print")) != 1 {
		t.Error("the prompt does not name the work that was kept beside the branch")
	}
	gittest.Git(t, k.bare, "merge-base", "--is-ancestor", foreign, branch)
	if got := k.show(t, branch, "four"); got != "4" {
		t.Errorf("the branch has %q", got)
	}
	if k.ref(t, beside) == "" {
		t.Errorf("%s is gone", beside)
	}
}

// nasty makes a work tree of every kind of change and prints what it is like.
const nasty = `#!/bin/bash
set -eo pipefail
finger() {
	find . -path ./.git -prune -o -name '*.ignored' -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum -z --
	find . -path ./.git -prune -o -name '*.ignored' -prune -o -printf '%y %m %P -> %l\0' | LC_ALL=C sort -z
	git --no-optional-locks status --porcelain -z
	git rev-parse HEAD HEAD~1
	git symbolic-ref HEAD
}
if [ "$SANDBOX_AGENT_MODE" = create ]; then
	echo stashed >>file && git stash -q
	echo committed >committed && git add committed && git commit -qm committed
	mkdir -p 'a folder' -- '-folder'
	echo space >'a folder/with  space '
	echo dash >./-rf && echo dash >'-folder/--force'
	echo newline >$'line\nfeed\n'
	echo tab >$'tab\tquote"back\\slash'
	echo umlaut >'Grüße 日本語 🙂'
	echo latin >$'latin-\xe9'
	echo star >'*' && echo colon >':(glob)x'
	echo more >>file
	head -c 300000 /dev/urandom >binary
	printf 'no line feed' >unterminated
	: >empty
	chmod +x plain && chmod -x tool && echo new >new-tool && chmod +x new-tool
	ln -s file link && ln -s /nowhere/at/all dangling && ln -s 'a folder' folder-link && ln -sf tool old-link
	rm gone && mv 'old name' $'new\nname' && rm was-file && mkdir was-file && echo x >was-file/x
	echo secret >x.ignored
	touch .git/index.lock
	held() { sha256sum .git/index .git/HEAD .git/refs/stash .git/logs/refs/stash; stat -c %y .git/index; git stash list; ls .git/*.lock; }
	held >/tmp/held
fi
echo "print $(finger | sha256sum)"
finger | tr '\0' '\n' | cat -v >&2
if [ "$SANDBOX_AGENT_MODE" = create ]; then
	echo first >zz-first
	echo agent-is-busy
	until test -e /tmp/saved; do sleep 0.1; done
	echo last >zz-last
	until test -e /tmp/check; do sleep 0.1; done
	held | cmp - /tmp/held && echo agent-is-untouched
	sleep 600
fi
`

// A checkpoint has everything that git does not ignore, leaves what is the
// agent's own alone, and comes back as it was.
func TestCheckpointOfNastyNames(t *testing.T) {
	t.Parallel()
	k := newKept(t, map[string]string{
		"agent.sh": nasty, ".gitignore": "*.ignored\n", "file": "x\n", "plain": "x\n", "tool": "x\n", "gone": "x\n", "old name": "x\n", "was-file": "x\n", "old-link": "x\n",
	})
	u := k.machine(t)
	s := k.begin(u, k.project(u, "", "exec bash ./agent.sh"))
	// The save that has the last file began after the one that has the first: it has all that was there before both.
	k.holds(t, workorder.CheckpointRef(k.id), "zz-first")
	k.tell(t, "saved")
	k.holds(t, workorder.CheckpointRef(k.id), "zz-last")
	if files := gittest.Git(t, k.bare, "ls-tree", "-r", "--name-only", workorder.CheckpointRef(k.id)); strings.Contains(files, ".ignored") {
		t.Errorf("an ignored file is in the checkpoint: %s", files)
	}
	k.tell(t, "check")
	s.waitFor("agent-is-untouched")
	k.kill(t)
	before := s.wait()
	lost := k.ended(u, before, workorder.StatusLost, workorder.EndedByHost)
	if lost.Checkpoint == nil || lost.Checkpoint.SHA != k.ref(t, workorder.CheckpointRef(k.id)) {
		t.Errorf("the lost run's result has the checkpoint %+v", lost.Checkpoint)
	}
	tree := gittest.Git(t, k.bare, "rev-parse", workorder.CheckpointRef(k.id)+"^{tree}")

	after := u.run("", "continue", k.id, "-p", k.project(u, "", "rm zz-first zz-last && exec bash ./agent.sh"))
	r := k.ended(u, after, workorder.StatusSuccess, workorder.EndedByAgent)
	if r.Restored == nil || !r.Restored.Verified || r.Restored.Tree != tree || r.Attempt != 2 {
		t.Errorf("attempt %d restored %+v, want %s", r.Attempt, r.Restored, tree)
	}
	if a, b := before.printed("print"), after.printed("print"); len(a) != 1 || !slices.Equal(a, b) {
		t.Errorf("the second box has another work tree: %q, before %q", b, a)
	}
	if k.ref(t, workorder.CheckpointRef(k.id)) != "" || r.Checkpoint != nil {
		t.Errorf("all is committed, and the checkpoint is still there: %+v", r.Checkpoint)
	}
}
