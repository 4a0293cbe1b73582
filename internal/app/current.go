package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// SandboxVariable names the sandbox of commands that name none.
	SandboxVariable = "SANDBOX_AGENT_SANDBOX"
	// ImageVariable names the image of containers that are created without one.
	ImageVariable = "SANDBOX_AGENT_IMAGE"
	// defaultIdle stops the sandbox of a directory: no one created it by name, so no one may think of removing it.
	defaultIdle = 30 * time.Minute
	// defaultDigits is how much of a hash distinguishes directories, in bytes.
	defaultDigits = 5
)

// Current returns the name of the sandbox in which a command runs that names none. It is found as by Works.Find, but
// without tasks: the sandbox of a finished task is gone. If there is none, Current creates one for the current
// directory. An image is only for a new one.
func (b Sandboxes) Current(ctx context.Context, image string) (string, error) {
	if name := b.Getenv(SandboxVariable); name != "" {
		return name, nil
	}
	if name, err := b.descending(ctx); err != nil || name != "" {
		return name, err
	}
	dir, err := filepath.Abs(cmp.Or(b.Dir, "."))
	if err != nil {
		return "", err
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	hash := sha256.Sum256([]byte(dir))
	name := "default-" + hex.EncodeToString(hash[:defaultDigits])
	m, err := b.Manager(false)
	if err != nil {
		return "", err
	}
	defer m.Close()
	sb, err := m.Get(ctx, name)
	if err == nil {
		if image != "" && image != sb.Spec().Image {
			return "", Usagef("image %s: sandbox %s of this directory has image %s: `sandbox-agent down %[2]s` removes it, with its files",
				image, name, sb.Spec().Image)
		}
		return name, nil
	}
	if !errors.Is(err, sandbox.ErrNotFound) {
		return "", SandboxError(err)
	}
	s := sandbox.Spec{Name: name, Image: image, IdleTimeout: defaultIdle}
	sb, err = createSandbox(ctx, b, m, s, "", "")
	if errors.Is(err, sandbox.ErrExists) { // another command was faster
		return name, nil
	}
	if err != nil {
		return "", SandboxError(err)
	}
	b.Say(fmt.Sprintf("note: created %s for this directory (%s); it stops after %s without use and keeps its files until "+
		"`sandbox-agent down %[1]s`", name, RuntimeText(sb), defaultIdle))
	if note := networkNote(sb); note != "" {
		b.Say(note)
	}
	return name, sb.Close()
}

// RuntimeText is a sandbox's runtime and image for a person.
func RuntimeText(sb *sandbox.Sandbox) string {
	s := sb.Spec()
	if s.Runtime == sandbox.RuntimeContainer {
		return fmt.Sprintf("%s of image %s", s.Runtime, text.Clean(s.Image))
	}
	return string(s.Runtime)
}

// networkNote says that a sandbox shares this machine's network, and how to change that; "" if it does not.
func networkNote(sb *sandbox.Sandbox) string {
	if s := sb.Spec(); s.Runtime == sandbox.RuntimeJail && s.Network == sandbox.NetworkFull {
		return "note: a jail shares this machine's network; `sandbox-agent up NAME --network none` creates one without"
	}
	return ""
}

// ChooseRuntime sets the runtime and the image of a new sandbox that has nothing else that decides: the runtime of the flag
// or of the environment; else a container if an image is named, by flag or environment; else a jail; and without jails
// on this machine a container of the image of tasks.
func (b Sandboxes) ChooseRuntime(ctx context.Context, m *sandbox.Manager, s *sandbox.Spec, flag string) (err error) {
	if s.Runtime, err = b.Runtime(flag); err != nil {
		return err
	}
	if s.Image != "" || s.Network == sandbox.NetworkRestricted { // the library chooses
		return nil
	}
	if s.Image = b.Getenv(ImageVariable); s.Image != "" && s.Runtime == sandbox.RuntimeAuto {
		return nil
	}
	s.Image = ""
	if s.Runtime == sandbox.RuntimeAuto && !m.Runtimes(ctx, sandbox.RuntimeJail)[0].Healthy {
		s.Runtime = sandbox.RuntimeContainer
	}
	if s.Runtime == sandbox.RuntimeContainer {
		s.Image, err = containerImage(ctx, b)
	}
	return err
}

// descending returns the existing sandbox whose branch descends from the current checkout; "" if there is none.
func (b Sandboxes) descending(ctx context.Context) (string, error) {
	m, err := b.Manager(false)
	if err != nil {
		return "", err
	}
	defer m.Close()
	found, err := b.Branches().Current(ctx, time.Time{}, func(c *branch.Branch) bool {
		_, err := m.Get(ctx, c.Sandbox)
		return err == nil
	})
	if err != nil || found == nil {
		return "", err
	}
	b.Say(fmt.Sprintf("note: in sandbox %s, whose branch descends from the current checkout", found.Sandbox))
	return found.Sandbox, nil
}

// containerImage returns the image of a container that was created without one: that of ImageVariable, or else the
// image of tasks with these parts, which is built if it is missing.
func containerImage(ctx context.Context, b Sandboxes, parts ...string) (string, error) {
	if name := b.Getenv(ImageVariable); name != "" {
		return name, nil
	}
	be, err := b.Engine()
	if err != nil {
		return "", err
	}
	show, done := b.buildEvents()
	defer done()
	img, err := be.Images.Ensure(ctx, "", parts, show)
	return cmp.Or(img.Name, img.ID), err
}

// RuntimeVariable names the runtime where no flag does.
const RuntimeVariable = "SANDBOX_AGENT_RUNTIME"

// Runtime is the runtime that the flag names, or else the environment.
func (e *Env) Runtime(flag string) (sandbox.Runtime, error) {
	k, err := sandbox.ParseRuntime(cmp.Or(flag, e.Getenv(RuntimeVariable), "auto"))
	if errors.Is(err, sandbox.ErrUnsupported) {
		return "", SandboxError(err)
	}
	if err != nil {
		return "", exiterr.New(workorder.ExitUsage, err, "`sandbox-agent runtime list` lists them")
	}
	return k, nil
}
