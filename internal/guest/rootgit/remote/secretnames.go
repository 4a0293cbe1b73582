package remote

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// inName searches the agent's name of a ref that the remote does not have. The task's branch name is the user's.
func (r *Remote) inName(ctx context.Context, c Change) []Leak {
	id, s := r.Repos.Order.TaskID, r.scan
	name, kept := strings.CutPrefix(c.Ref, workorder.KeptRef(id, ""))
	if !kept || r.Ledger.Refs[c.Ref] != "" || c.Ref == workorder.KeptRef(id, r.Ledger.Branch()) {
		return nil
	}
	f := s.set.Finder()
	_, _ = io.WriteString(f, name+"\x00"+c.Name) // a Finder does not fail
	var list []Leak
	for _, secret := range r.private(ctx, f) {
		list = append(list, r.leak(secret, Leak{Ref: true}))
	}
	if len(list) > 0 {
		s.dirty[c.Ref] = list
	}
	return list
}

// inPaths searches the paths of changed files. fresh are git's arguments that select the commits up to sha.
func (r *Remote) inPaths(ctx context.Context, sha string, fresh []string) ([]Leak, error) {
	f := r.scan.set.Finder()
	args := append([]string{"log", "--format=", "--name-only", "--no-renames", "-m", "-t", "-z"}, fresh...)
	if _, err := r.Repos.Outbox().Stream(ctx, strings.NewReader(""), f, time.Second, args...); err != nil {
		return nil, err
	}
	var list []Leak
	for _, name := range r.private(ctx, f) {
		list = append(list, r.leak(name, Leak{object: sha}))
	}
	return list, nil
}

func (r *Remote) leak(name string, l Leak) Leak {
	l.Name, l.Refused = name, name != placeholderName && r.Repos.Order.PushSecrets != workorder.PushSecretsAllow
	return l
}

// private lists the secrets that f has found and whose values are not public.
func (r *Remote) private(ctx context.Context, f *redact.Finder) (names []string) {
	for _, name := range f.Names() {
		if !r.isPublic(ctx, name) {
			names = append(names, name)
		}
	}
	return names
}

// isPublic reports whether base has a value in its files or paths: then it is no secret of the task.
func (r *Remote) isPublic(ctx context.Context, name string) bool {
	s := r.scan
	if known, asked := s.public[name]; asked {
		return known
	}
	base, value := r.Ledger.State.BaseSHA, s.values[name]
	if base == "" || strings.Contains(value, "\n") {
		return false
	}
	m := r.Repos.Mirror()
	m.Stdin = value
	public := m.Run(ctx, "grep", "--quiet", "--text", "--fixed-strings", "-f", "-", base) == nil
	if !public {
		f := redact.Whole(map[string]string{name: value}).Finder()
		_, err := r.Repos.Mirror().Stream(ctx, strings.NewReader(""), f, time.Second, "ls-tree", "-r", "-z", "--name-only", base)
		public = err == nil && len(f.Names()) > 0
	}
	if ctx.Err() == nil {
		s.public[name] = public
	}
	return public
}
