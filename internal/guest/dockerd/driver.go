package dockerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"golang.org/x/sys/unix"
)

// Storage drivers, best first.
const (
	Overlay2    = "overlay2"
	FuseOverlay = "fuse-overlayfs"
	VFS         = "vfs"

	trialPrefix  = ".trial-"
	trialTimeout = 5 * time.Second // a mount takes milliseconds; a hanging FUSE server must not block the box
)

// Trial tests a storage driver in a separate directory.
type Trial struct {
	Driver string
	Try    func(ctx context.Context, dir string) error
}

// RealTrials returns the drivers in order of preference.
func RealTrials() []Trial {
	return []Trial{{Overlay2, tryOverlay}, {FuseOverlay, tryFuse}, {VFS, tryVFS}}
}

// ChooseDriver runs the trials inside root, on the file system of the layers. It returns the first driver that works,
// and why the ones before it do not.
func ChooseDriver(ctx context.Context, root string, trials []Trial) (driver string, reasons []string, err error) {
	for _, t := range trials {
		err := tryIn(ctx, root, t)
		if err == nil {
			return t.Driver, reasons, nil
		}
		if ctx.Err() != nil {
			return "", reasons, context.Cause(ctx)
		}
		reasons = append(reasons, fmt.Sprintf("%s does not work on %s: %v", t.Driver, root, err))
	}
	return "", reasons, fmt.Errorf("no storage driver works on %s: is it writable, is its disk full?", root)
}

func tryIn(ctx context.Context, root string, t Trial) (err error) {
	dir, err := os.MkdirTemp(root, trialPrefix)
	if err != nil {
		return fmt.Errorf("create trial directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	return t.Try(ctx, dir)
}

// trialTree creates the directories of a union mount, with entries in the lower one.
func trialTree(dir string) (options, merged string, err error) {
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	for _, f := range []string{"old", "gone"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "lower", f), []byte(f), 0o644))
	}
	return fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir), filepath.Join(dir, "merged"), err
}

// useUnion performs on the mount the operations of images and containers.
func useUnion(merged string) error {
	if err := os.Mkdir(filepath.Join(merged, "new"), 0o755); err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	if err := os.Rename(filepath.Join(merged, "new"), filepath.Join(merged, "dir")); err != nil {
		return fmt.Errorf("rename directory: %w", err)
	}
	if err := os.Rename(filepath.Join(merged, "old"), filepath.Join(merged, "dir", "moved")); err != nil {
		return fmt.Errorf("rename file: %w", err)
	}
	if err := os.Remove(filepath.Join(merged, "gone")); err != nil {
		return fmt.Errorf("delete file: %w", err)
	}
	b, err := os.ReadFile(filepath.Join(merged, "dir", "moved"))
	if err != nil {
		return fmt.Errorf("read file back: %w", err)
	}
	if string(b) != "old" {
		return fmt.Errorf("read %q back, wrote %q", b, "old")
	}
	for _, f := range []string{"old", "gone"} {
		if _, err := os.Lstat(filepath.Join(merged, f)); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s still exists after its removal", f)
		}
	}
	return nil
}

func tryOverlay(_ context.Context, dir string) (err error) {
	options, merged, err := trialTree(dir)
	if err != nil {
		return err
	}
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	defer func() { err = errors.Join(err, unmount(merged)) }()
	return useUnion(merged)
}

func tryFuse(ctx context.Context, dir string) (err error) {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: start the sandbox with --device /dev/fuse", err)
	}
	f.Close()
	options, merged, err := trialTree(dir)
	if err != nil {
		return err
	}
	// It goes to the background by itself once the mount is there.
	if _, err := proc.Output(ctx, proc.Spec{Argv: []string{"fuse-overlayfs", "-o", options, merged}}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmount(merged)) }()
	return useUnion(merged)
}

func tryVFS(_ context.Context, dir string) error {
	return os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600)
}

func unmount(p string) error {
	if err := unix.Unmount(p, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount trial: %w", err)
	}
	return nil
}
