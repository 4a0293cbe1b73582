package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

const (
	// sandboxVariable names the sandbox of commands that name none, imageVariable the image of one that is made for them.
	sandboxVariable = "SANDBOX_AGENT_SANDBOX"
	imageVariable   = "SANDBOX_AGENT_IMAGE"
	// defaultIdle ends the sandbox of a folder, which nobody asked to be made and so nobody may think of ending: a break from work, and not a night.
	defaultIdle = 30 * time.Minute
	// defaultDigits of a hash set folders apart, in bytes.
	defaultDigits = 5
)

// anySandbox is the sandbox of a command that names none.
func (o *execOptions) anySandbox(ctx context.Context, a *App) (string, error) {
	if name := a.Getenv(sandboxVariable); name != "" {
		return name, nil
	}
	if name, err := a.standingHere(ctx); err != nil || name != "" {
		return name, err
	}
	dir, err := filepath.Abs(cmp.Or(a.Dir, "."))
	if err != nil {
		return "", err
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	hash := sha256.Sum256([]byte(dir))
	name := "default-" + hex.EncodeToString(hash[:defaultDigits])
	m, err := a.sandboxes()
	if err != nil {
		return "", err
	}
	defer m.Close()
	sb, err := m.Get(ctx, name)
	if err == nil {
		if o.image != "" && o.image != sb.Spec().Image {
			return "", usage("--image %s: sandbox %s of this folder is of %s: `sandbox-agent down %[2]s` removes it, with its files", o.image, name, sb.Spec().Image)
		}
		return name, nil
	}
	if !errors.Is(err, sandbox.ErrNotFound) {
		return "", sandboxError(err)
	}
	s := sandbox.Spec{Name: name, Image: o.image, IdleTimeout: defaultIdle}
	if err := a.chooseRuntime(ctx, m, &s, ""); err != nil {
		return "", err
	}
	sb, err = m.Create(ctx, s)
	if errors.Is(err, sandbox.ErrExists) { // another command was faster
		return name, nil
	}
	if err != nil {
		return "", sandboxError(err)
	}
	fmt.Fprintf(a.Stderr, "note: created %s for this directory (%s); it stops after %s without use and keeps its files until `sandbox-agent down %[1]s`\n",
		name, runtimeOf(sb), defaultIdle)
	a.noteNetwork(sb)
	return name, sb.Close()
}

// runtimeOf is a sandbox's runtime and image for a person.
func runtimeOf(sb *sandbox.Sandbox) string {
	s := sb.Spec()
	if s.Runtime == sandbox.RuntimeContainer {
		return fmt.Sprintf("%s of image %s", s.Runtime, text.Clean(s.Image))
	}
	return string(s.Runtime)
}

// noteNetwork says that a sandbox shares this machine's network, and how to change that.
func (a *App) noteNetwork(sb *sandbox.Sandbox) {
	if s := sb.Spec(); s.Runtime == sandbox.RuntimeJail && s.Network == sandbox.NetworkFull {
		fmt.Fprintln(a.Stderr, "note: a jail shares this machine's network; `sandbox-agent up NAME --network none` creates one without")
	}
}

// chooseRuntime sets the runtime and the image of a new sandbox that has nothing else that decides: the runtime of the flag
// or of the environment; else a container if an image is named, by flag or environment; else a jail; and without jails
// on this machine a container of the image of tasks.
func (a *App) chooseRuntime(ctx context.Context, m *sandbox.Manager, s *sandbox.Spec, flag string) (err error) {
	if s.Runtime, err = a.Runtime(flag); err != nil {
		return err
	}
	if s.Image != "" || s.Network == sandbox.NetworkRestricted { // the library chooses
		return nil
	}
	if s.Image = a.Getenv(imageVariable); s.Image != "" && s.Runtime == sandbox.RuntimeAuto {
		return nil
	}
	s.Image = ""
	if s.Runtime == sandbox.RuntimeAuto && !m.Runtimes(ctx, sandbox.RuntimeJail)[0].Healthy {
		s.Runtime = sandbox.RuntimeContainer
	}
	if s.Runtime == sandbox.RuntimeContainer {
		s.Image, err = a.containerImage(ctx)
	}
	return err
}

// standingHere is the one sandbox whose branch descends from what is checked out here; "" where there is none.
func (a *App) standingHere(ctx context.Context) (string, error) {
	_, found, err := a.descending(ctx)
	if err != nil || len(found) == 0 {
		return "", err
	}
	m, err := a.sandboxes()
	if err != nil {
		return "", err
	}
	defer m.Close()
	var names []string
	for _, b := range found {
		if _, err := m.Get(ctx, b.Sandbox); err == nil { // one that is gone, or not to be had, is not meant
			names = append(names, b.Sandbox)
		}
	}
	switch len(names) {
	case 0:
		return "", nil
	case 1:
		fmt.Fprintf(a.Stderr, "note: in sandbox %s, whose branch descends from what is checked out here\n", names[0])
		return names[0], nil
	}
	return "", usage("the branches of several sandboxes descend from what is checked out here: %s: name one", strings.Join(names, ", "))
}

// containerImage is the image of a container that nobody has named one for.
func (a *App) containerImage(ctx context.Context) (string, error) {
	if name := a.Getenv(imageVariable); name != "" {
		return name, nil
	}
	return a.taskImage(ctx)
}

// taskImage is the image of tasks, which is built where it is missing.
func (a *App) taskImage(ctx context.Context) (string, error) {
	be, err := a.open()
	if err != nil {
		return "", err
	}
	view := a.NewView(os.Stderr, false)
	defer view.Close()
	img, err := be.Images.Ensure(ctx, "", view.Event)
	return cmp.Or(img.Name, img.ID), err
}
