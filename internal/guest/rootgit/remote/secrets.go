package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// SecretError is the refusal to push commits that contain a secret's value.
type SecretError struct{ Leaks []Leak }

func (e *SecretError) Error() string {
	var list []string
	for _, l := range e.Leaks {
		list = append(list, l.String())
	}
	return "the value of a secret is in the commits to push (" + strings.Join(
		list, ", ",
	) + "); to push it anyway, set push_secrets: allow in the project file"
}

// Leak is a secret whose value is in an object to push.
type Leak struct {
	Name string // of the secret
	Path string // of the file; empty in a message, or a name
	// Ref reports that it is in the name of a branch or tag.
	Ref bool
	// Refused reports that it was not pushed.
	Refused bool
	object  string
}

func (l Leak) String() string {
	switch {
	case l.Ref:
		return l.Name + " in the name of a branch or tag"
	case l.Path == "":
		return l.Name + " in a commit's message or a file's name"
	}
	return l.Name + " in " + l.Path
}

// placeholder is the prefix of the gateway's replacements for keys: worthless outside the box, so reported and pushed.
const (
	placeholder     = "sandbox-agent-placeholder-"
	placeholderName = "the model gateway's placeholder"
)

// minSecret is the shortest length of a searched secret, in bytes: shorter values occur by chance.
const minSecret = 8

// scanner searches commits for secrets before they are pushed.
type scanner struct {
	set    *redact.Set
	values map[string]string
	clean  []string          // examined commits without a relevant secret
	dirty  map[string][]Leak // by commit
	public map[string]bool   // names of secrets whose values base has already
}

// Guard makes Send search what it pushes for these values, by name.
func (r *Remote) Guard(secrets map[string]string) {
	values := map[string]string{placeholderName: placeholder}
	for name, value := range secrets {
		if value = strings.TrimSpace(value); len(value) >= minSecret {
			values[name] = value
		}
	}
	r.scan = &scanner{set: redact.Whole(values), values: values, dirty: map[string][]Leak{}, public: map[string]bool{}}
}

// Leaks lists the findings so far: in these objects, or in all if objects is nil.
func (r *Remote) Leaks(objects map[string]bool) (list []Leak) {
	if r.scan == nil {
		return nil
	}
	for _, leaks := range r.scan.dirty {
		for _, l := range leaks {
			there := objects == nil || objects[l.object]
			if l.object = ""; there && !slices.Contains(list, l) {
				list = append(list, l)
			}
		}
	}
	slices.SortFunc(list, func(a, b Leak) int { return strings.Compare(a.String(), b.String()) })
	return list
}

// maxClean bounds the remembered commits; each is an argument of git.
const maxClean = 50

// refusedSecrets lists the changes that must not be pushed because of a secret, by ref.
func (r *Remote) refusedSecrets(ctx context.Context, cs []Change) (map[string]string, error) {
	if r.scan == nil {
		return nil, nil
	}
	id := r.Repos.Order.TaskID
	refused, all := map[string]string{}, &SecretError{}
	for _, c := range cs {
		if c.SHA == "" || c.Ref == workorder.StateRef(id) || c.Ref == workorder.AliveRef(id) {
			continue
		}
		leaks, err := r.leaks(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("search the commits to push for secrets: %w", err)
		}
		for _, l := range leaks {
			if l.object = ""; l.Refused {
				refused[c.Ref] = "contains the value of a secret"
				if !slices.Contains(all.Leaks, l) {
					all.Leaks = append(all.Leaks, l)
				}
			}
		}
	}
	if len(refused) == 0 {
		return nil, nil
	}
	return refused, &RefusedError{Why: refused, Err: &git.Error{Verb: "push", Kind: git.KindRejected, Err: all}}
}

// leaks searches the name of a ref and the objects and paths of its commit that the remote does not have.
func (r *Remote) leaks(ctx context.Context, c Change) ([]Leak, error) {
	named := r.inName(ctx, c)
	found, err := r.inCommits(ctx, c.SHA)
	return append(named, found...), err
}

func (r *Remote) inCommits(ctx context.Context, sha string) ([]Leak, error) {
	s := r.scan
	if known, seen := s.dirty[sha]; seen {
		return known, nil
	}
	if slices.Contains(s.clean, sha) {
		return nil, nil
	}
	fresh := append([]string{"--ignore-missing", sha, "--not", r.Ledger.State.BaseSHA}, slices.Collect(maps.Values(r.Ledger.Refs))...)
	fresh = append(slices.DeleteFunc(append(fresh, s.clean...), func(a string) bool { return a == "" }), "--")
	out, err := r.Repos.Outbox().Output(ctx, append([]string{"rev-list", "--objects"}, fresh...)...)
	if err != nil {
		return nil, err
	}
	var ids []string
	paths := map[string]string{}
	for line := range strings.Lines(string(out)) {
		id, path, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		ids, paths[id] = append(ids, id), path
	}
	found, err := r.look(ctx, ids, paths)
	if err != nil {
		return nil, err
	}
	inPaths, err := r.inPaths(ctx, sha, fresh)
	if err != nil {
		return nil, err
	}
	found = append(found, inPaths...)
	if len(found) > 0 {
		s.dirty[sha] = found
	}
	if !slices.ContainsFunc(found, func(l Leak) bool { return l.Refused }) {
		s.clean = append(s.clean[max(0, len(s.clean)-maxClean+1):], sha)
	}
	return found, nil
}

// look finds the objects that contain a value, by bisection: most pushes have none.
func (r *Remote) look(ctx context.Context, ids []string, paths map[string]string) ([]Leak, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	f := r.scan.set.Finder()
	if err := r.contents(ctx, ids, f); err != nil {
		return nil, err
	}
	names := r.private(ctx, f)
	switch {
	case len(names) == 0:
		return nil, nil
	case len(ids) > 1:
		first, err := r.look(ctx, ids[:len(ids)/2], paths)
		if err != nil {
			return nil, err
		}
		second, err := r.look(ctx, ids[len(ids)/2:], paths)
		return append(first, second...), err
	}
	var list []Leak
	for _, name := range names {
		list = append(list, r.leak(name, Leak{object: ids[0], Path: text.Words(text.Printable(r.Repos.Mask(paths[ids[0]])))}))
	}
	return list, nil
}

func (r *Remote) contents(ctx context.Context, ids []string, w io.Writer) error {
	_, err := r.Repos.Outbox().Stream(ctx, strings.NewReader(strings.Join(ids, "\n")+"\n"), w, time.Second, "cat-file", "--batch", "--buffer")
	return err
}

// SecretIn returns the refusal because of a secret in an error; nil if there is none.
func SecretIn(err error) *SecretError {
	s, _ := errors.AsType[*SecretError](err)
	return s
}
