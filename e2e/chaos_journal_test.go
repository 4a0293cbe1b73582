//go:build e2e

package e2e

import (
	"bufio"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// chaosAgent writes numbered files of random content and tells the journal of
// each when it is written. It goes on from the files that are there. The test relies on it, so it
// says nothing before it is true. Now and then it commits, amends, stashes, renames, or commits elsewhere and merges that.
const chaosAgent = `#!/bin/bash
cd "$SANDBOX_AGENT_WORKSPACE" || exit 2
record() {
	blob=$(git hash-object -- "$1") || exit 3
	exec 3<>"/dev/tcp/$JOURNAL_HOST/$JOURNAL_PORT" || exit 4
	printf '%s\t%s\n' "$1" "$blob" >&3
	read -r -t 5 -u 3 ok || exit 4
	exec 3>&-
}
BRANCH=agent/$SANDBOX_AGENT_TASK_ID-write-the-files
# An attempt before may have been stopped in the middle of anything.
case $(git branch --show-current) in
side) git add -A && git commit -q -m rest && git branch -q -f "$BRANCH" && git checkout -q "$BRANCH" || exit 3 ;;
esac
mkdir -p work || exit 3
# Between push and pop of a stash its files are nowhere else; what was stashed is kept beside the branch.
if git fetch -q origin "refs/sandbox-agent/$SANDBOX_AGENT_TASK_ID/heads/stash" 2>/dev/null; then
	git ls-tree -r -z --name-only 'FETCH_HEAD^3' | while IFS= read -r -d '' p; do
		[ -e "$p" ] || [ -e "$p moved" ] || git cat-file blob "FETCH_HEAD^3:$p" >"$p" || exit 3
	done
fi
i=$(ls work | wc -l)
echo "starts with $i files"
while [ "$i" -lt "$FILES" ]; do
	i=$((i + 1))
	f="work/file  $i ü"
	head -c $((RANDOM % 4000 + 50)) /dev/urandom >"$f" || exit 3
	record "$f"
	echo "$i" >counter || exit 3
	record counter
	echo "$i" >x.ignored
	case $((i % 24)) in
	6) git stash push -q -u && sleep 0.5 && git stash pop -q || exit 3 ;;
	8) git add -A && git commit -q -m "$i files" || exit 3 ;;
	12) git add -A && git commit -q --amend -m "$i files, again" || exit 3 ;;
	14) mv "$f" "$f moved" ;;
	17) git checkout -q -b side && git add -A && git commit -q -m side || exit 3 ;;
	19) git add -A && git commit -q -m "side, more" && git checkout -q - && git merge -q side && git branch -q -d side || exit 3 ;;
	esac
	sleep 0.2
	[ ! -e /tmp/blow ] || . /tmp/blow
done
echo "all written"
`

// record is one line of the journal.
type record struct {
	path, blob string
	at         time.Time
}

// journal is what the agent said that it had written, kept outside of every box.
type journal struct {
	host string
	port int

	mu   sync.Mutex
	said []record
}

func newJournal(t *testing.T, address string) *journal {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{host: address}
	if j.port, err = strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go j.take(c)
		}
	}()
	return j
}

func (j *journal) take(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	path, blob, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
	if err != nil || !ok {
		return
	}
	j.mu.Lock()
	j.said = append(j.said, record{path, blob, time.Now()})
	j.mu.Unlock()
	_, _ = c.Write([]byte("ok\n"))
}

// missing lists what was written before at and is not saved, under whatever name, in
// that or a later version, and how long before at the first of it was written. It forgets that: what is
// lost is lost once. Saved work stays in the journal, and must never go away again.
func (j *journal) missing(saved map[string]bool, at time.Time) (lost []string, since time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	open := map[string]time.Time{} // by path, the oldest version that is in no saved one
	for _, r := range j.said {
		switch {
		case r.at.After(at):
		case saved[r.blob]:
			delete(open, r.path)
		case open[r.path].IsZero():
			open[r.path] = r.at
		}
	}
	for path, t := range open {
		lost = append(lost, path)
		since = max(since, at.Sub(t))
	}
	j.said = slices.DeleteFunc(j.said, func(r record) bool {
		from, ok := open[r.path]
		return ok && !r.at.Before(from) && !r.at.After(at)
	})
	return lost, since
}

// latestMissing lists the files whose last recorded version is not there.
func (j *journal) latestMissing(there map[string]bool) (missing []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	last := map[string]string{}
	for _, r := range j.said {
		last[r.path] = r.blob
	}
	for path, blob := range last {
		if !there[blob] {
			missing = append(missing, path)
		}
	}
	return missing
}

// forget begins anew, for another task.
func (j *journal) forget() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.said = nil
}
