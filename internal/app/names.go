package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Kinds of names.
const (
	kindTask    = "task"
	kindSandbox = "sandbox"
	kindEither  = "task or sandbox"
)

// UnknownNameError is the error for a name that nothing of its kind has.
type UnknownNameError struct {
	Name  string
	kind  string
	cause error
}

func (e *UnknownNameError) Error() string { return fmt.Sprintf("no %s named %q", e.kind, e.Name) }

func (e *UnknownNameError) Unwrap() error { return e.cause }

// UnknownName replaces the error of a look-up if neither a task nor a sandbox has the name. Other errors, and those of a
// sandbox that is known but unavailable, stay.
func (e *Env) UnknownName(ctx context.Context, name string, err error) error {
	missing := errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, taskstore.ErrNotFound) || errors.Is(err, branch.ErrNotFound)
	if !missing || errors.Is(err, sandbox.ErrOtherOwner) || errors.Is(err, sandbox.ErrUnavailable) {
		return SandboxError(err)
	}
	known := e.KnownNames(ctx)
	if slices.Contains(known, name) {
		if errors.Is(err, branch.ErrNotFound) {
			return NotFound(err, "only a sandbox of a repository has one: sandbox-agent up NAME --repo .")
		}
		return SandboxError(err)
	}
	near := diag.Nearest(name, known)
	if near == "" {
		near = diag.Nearest(FullTaskID(name), known)
	}
	return NotFound(&UnknownNameError{name, kindEither, err}, DidYouMean(near, "list tasks and sandboxes with: sandbox-agent ps --all"))
}

// unknownOf is UnknownName for a use case that takes only one kind. It says which commands take the other kind if that has the name.
func unknownOf(ctx context.Context, e *Env, kind, name string, err error) error {
	if kind == kindSandbox && (errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrName)) {
		if st, serr := e.Store(); serr == nil {
			if rec, terr := st.Find(name); terr == nil {
				return NotFound(fmt.Errorf("%s is a task, not a sandbox", rec.TaskID), fmt.Sprintf(
					"use one of the commands for tasks, such as: sandbox-agent exec %[1]s COMMAND, sandbox-agent status %[1]s, sandbox-agent rm %[1]s",
					rec.TaskID))
			}
		}
	}
	if kind == kindTask && errors.Is(err, taskstore.ErrNotFound) && slices.Contains(e.KnownNames(ctx), name) {
		return NotFound(fmt.Errorf("%s is a sandbox, not a task", name), fmt.Sprintf(
			"use one of the commands for sandboxes, such as: sandbox-agent status %[1]s, sandbox-agent log %[1]s, sandbox-agent diff %[1]s", name))
	}
	err = e.UnknownName(ctx, name, err)
	if unknown, ok := errors.AsType[*UnknownNameError](err); ok {
		unknown.kind = kind
	}
	return err
}

// KnownNames returns the names of this state directory's tasks and sandboxes, as far as they can be read. It asks no engine.
func (e *Env) KnownNames(ctx context.Context) (names []string) {
	if s, err := e.Registry(); err == nil {
		names, _ = s.Names()
	}
	if all, err := e.BranchStore(); err == nil {
		list, _ := all.List(ctx)
		for _, b := range list {
			names = append(names, b.Name)
		}
	}
	if st, err := e.Store(); err == nil {
		records, _ := st.List()
		for _, r := range records {
			names = append(names, r.TaskID)
		}
	}
	return names
}

// DidYouMean returns the hint for a name that was not found: the nearest name, if there is one, and how to list all.
func DidYouMean(near, list string) string {
	if near == "" {
		return list
	}
	return fmt.Sprintf("did you mean %s? %s", near, list)
}

// taskWord matches a task's ID or the beginning of one.
var taskWord = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// CheckTask returns a usage error for a word that is neither a task's ID nor a sandbox's name.
func CheckTask(id string) error {
	if taskWord.MatchString(strings.TrimSpace(id)) {
		return nil
	}
	return exiterr.New(workorder.ExitUsage, fmt.Errorf("%.80q is neither a task's ID nor a sandbox's name", id),
		"`sandbox-agent ps --all` lists them")
}

// CheckSandbox returns a usage error for a name that neither a sandbox nor a snapshot can have.
func CheckSandbox(name string) error {
	if sandbox.ValidName(name) {
		return nil
	}
	if workorder.ValidTaskID(name) {
		return exiterr.New(workorder.ExitUsage, fmt.Errorf("%s is a task's ID, and no sandbox can have it as its name", name),
			"continue a task with: sandbox-agent continue "+name+"; show it with: sandbox-agent status "+name)
	}
	err := fmt.Errorf("%.80q is %w: use letters a–z, digits, - and _, a letter or digit first, 63 at most", name, sandbox.ErrName)
	return exiterr.New(workorder.ExitUsage, err, "`sandbox-agent ps` lists sandboxes")
}

// FullTaskID completes what a user may leave out of a task's ID: the prefix, and capital letters.
func FullTaskID(id string) string {
	id = strings.ToUpper(strings.TrimSpace(id))
	if !strings.HasPrefix(id, "T-") {
		id = "T-" + id
	}
	return id
}
