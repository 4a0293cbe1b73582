package workorder

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

const (
	taskAlphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	// maxSlug is the limit of the readable end of a branch name, in bytes: enough for a few words, short enough for the
	// user interfaces of forges.
	maxSlug = 24
)

var taskID = lazyregexp.New(`^T-[0-9A-Z]{8}$`)

// NewTaskID returns a random task id: T- and 8 characters of 0-9A-Z (41 bits).
func NewTaskID() string {
	// 252 is the largest multiple of 36 below 256. Higher bytes are discarded, so that every character is equally likely.
	id := make([]byte, 0, 8)
	var b [16]byte
	for len(id) < 8 {
		rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
		for _, c := range b {
			if c < 252 && len(id) < 8 {
				id = append(id, taskAlphabet[c%36])
			}
		}
	}
	return "T-" + string(id)
}

// ValidTaskID reports whether s has the form of a task id.
func ValidTaskID(s string) bool { return taskID.MatchString(s) }

var attemptID = lazyregexp.New(`^[0-9a-f]{16}$`)

// NewAttemptID returns a random attempt id.
func NewAttemptID() string {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return hex.EncodeToString(b[:])
}

// ValidAttemptID reports whether s has the form of an attempt id.
func ValidAttemptID(s string) bool { return attemptID.MatchString(s) }

// Branch returns the task's branch, agent/<id>-<slug>, or agent/<id> if the task has no ASCII letters and digits for a slug.
func Branch(id, task string) string {
	if s := Slug(task); s != "" {
		return "agent/" + id + "-" + s
	}
	return "agent/" + id
}

// OwnBranch reports whether branch is a valid name for the task's branch.
func OwnBranch(id, branch string) bool {
	rest, ok := strings.CutPrefix(branch, "agent/"+id)
	return ok && (rest == "" || rest[0] == '-')
}

// Slug shortens a task to whole words of [a-z0-9] joined by dashes, at most maxSlug bytes. It is empty if nothing remains.
func Slug(task string) string {
	var b strings.Builder
	for _, w := range strings.FieldsFunc(strings.ToLower(task), func(r rune) bool {
		return r >= utf8.RuneSelf || ((r < 'a' || r > 'z') && (r < '0' || r > '9'))
	}) {
		if b.Len() == 0 {
			b.WriteString(w[:min(len(w), maxSlug)])
			continue
		}
		if b.Len()+1+len(w) > maxSlug {
			break
		}
		b.WriteByte('-')
		b.WriteString(w)
	}
	return b.String()
}

// ValidRefName reports whether s is a valid branch name by the rules of git-check-ref-format(1) for refs/heads/<s>, and is not an option.
func ValidRefName(s string) bool {
	if s == "" || len(s) > 250 || s == "@" || strings.HasPrefix(s, "-") || strings.HasPrefix(s, "/") ||
		strings.HasSuffix(s, "/") || strings.HasSuffix(s, ".") ||
		strings.Contains(s, "..") || strings.Contains(s, "//") || strings.Contains(s, "@{") {
		return false
	}
	for part := range strings.SplitSeq(s, "/") {
		if strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	for _, r := range s {
		if r < 0x20 || r == 0x7f || strings.ContainsRune(" ~^:?*[\\", r) {
			return false
		}
	}
	return utf8.ValidString(s)
}

// BranchesClash reports whether git cannot have both branches: one is a prefix path of the other, as agent is of agent/x.
func BranchesClash(a, b string) bool {
	return strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}
