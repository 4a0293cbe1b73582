package artifact

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/lockfile"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Images builds images and unpacks them.
type Images interface {
	Small(ctx context.Context, building func(name string), progress func(workorder.Event)) (workorder.Image, error)
	// Derive builds the image name from a Dockerfile, if it is missing.
	Derive(ctx context.Context, name string, dockerfile []byte, progress func(workorder.Event)) error
	// Root unpacks the programs of an image into a directory.
	Root(ctx context.Context, image, dir string) error
}

// Builder builds artifacts.
type Builder struct {
	Images   func() (Images, error) // called only if an artifact needs an image or packages
	State    string                 // has the root directories that artifacts share
	Building func(name string)
	Progress func(workorder.Event)
}

// repository is the repository of images with packages.
const repository = "sandbox-agent-environment"

//go:embed jail.sh
var jailScript string

//go:embed container.sh
var containerScript string

// boxScript needs sandbox-agent, which alone creates boxes.
const boxScript = `command -v sandbox-agent >/dev/null || {
	echo "$sa_name: sandbox-agent is missing" >&2
	exit 126
}
exec sandbox-agent run "$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")" -f -
`

// Build builds an artifact in the directory dir. It replaces an earlier artifact, but no other directory that is not
// empty. After an error dir is unchanged.
func (b *Builder) Build(ctx context.Context, d Definition, dir string) (err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := replaceable(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("build the artifact: %w", err)
	}
	made, err := os.MkdirTemp(filepath.Dir(dir), ".artifact-")
	if err != nil {
		return fmt.Errorf("build the artifact: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(made)) }()
	if err := os.Chmod(made, 0o755); err != nil { // other users run it
		return fmt.Errorf("build the artifact: %w", err)
	}
	if err := b.fill(ctx, &d, made, dir); err != nil {
		return fmt.Errorf("build the artifact %s: %w", d.Name, err)
	}
	old := filepath.Join(filepath.Dir(dir), ".artifact-old-"+rand.Text())
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("build the artifact: %w", err)
	}
	if err := os.Rename(made, dir); err != nil {
		return errors.Join(fmt.Errorf("build the artifact: %w", err), os.Rename(old, dir))
	}
	return os.RemoveAll(old)
}

func replaceable(dir string) error {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(list) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("build the artifact: %w", err)
	}
	var m Metadata
	if b, err := readMetadata(filepath.Join(dir, MetadataFile)); err != nil || m.decode(b) != nil || m.Own == nil {
		return fmt.Errorf("build the artifact: %w: %s contains files that sandbox-agent did not build: choose another directory",
			fs.ErrExist, dir)
	}
	return nil
}

// fill writes an artifact into dir, which is renamed to the path to.
func (b *Builder) fill(ctx context.Context, d *Definition, dir, to string) error {
	p, err := d.preset(dir)
	if err != nil {
		return err
	}
	argv, err := p.Argv(0)
	if err != nil {
		return err
	}
	if p.Runtime == sandbox.RuntimeContainer || len(d.Packages) > 0 {
		if err := b.image(ctx, d); err != nil {
			return err
		}
	}
	files := map[string]string{}
	var script strings.Builder
	// The script's own variables begin with sa_, which no inherited variable does.
	fmt.Fprintf(&script, "#!/bin/sh\n# Runs the code of standard input where it can do no harm. Built by sandbox-agent.\nset "+
		"-u\nsa_name=%s sa_image=%s sa_timeout_seconds=%s sa_memory_mb=%d sa_project_mount=%s sa_inherit=%s\nset -- %s\n",
		text.Shell(d.Name), text.Shell(d.Image), strconv.FormatFloat(d.TimeoutSeconds, 'f', -1, 64), d.MemoryMB, text.Shell(d.Own.ProjectMount),
		text.Shell(strings.Join(d.Own.Inherit, " ")), text.Shell(argv...))
	switch p.Runtime {
	case sandbox.RuntimeJail:
		if len(d.Packages) > 0 {
			if err := b.root(ctx, d.Image, dir, to); err != nil {
				return err
			}
			d.Image = "" // its programs are in the directory
		}
		script.WriteString(jailScript)
		name, calls, err := filter()
		if err != nil {
			return err
		}
		files[name] = string(calls)
		files["etc/passwd"] = "root:x:0:0:root:/root:/usr/sbin/nologin\nsandbox:x:1000:1000::/workspace:/bin/sh\n" +
			"nobody:x:65534:65534:nobody:/workspace:/bin/sh\n"
		files["etc/group"] = "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n"
		files["etc/nsswitch.conf"] = "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"
		files["etc/hosts"] = "127.0.0.1 localhost sandbox\n::1 localhost\n"
	case sandbox.RuntimeContainer:
		script.WriteString(containerScript)
	default:
		script.WriteString(boxScript)
	}
	d.Own.Image = d.Image
	files[runFile] = script.String()
	text, err := json.MarshalIndent(d.Metadata, "", "  ")
	if err != nil {
		return err
	}
	files[MetadataFile] = string(text) + "\n"
	return write(dir, files)
}

func write(dir string, files map[string]string) error {
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		// Others may run it, whatever the umask.
		if err := os.Chmod(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if name == runFile {
			mode = 0o755
		}
		if err := os.WriteFile(file, []byte(content), mode); err != nil {
			return err
		}
		if err := os.Chmod(file, mode); err != nil {
			return err
		}
	}
	return nil
}

// image sets the image of an artifact, and builds it for packages.
func (b *Builder) image(ctx context.Context, d *Definition) error {
	if d.Image != "" {
		return nil
	}
	images, err := b.Images()
	if err != nil {
		return err
	}
	small, err := images.Small(ctx, b.Building, b.Progress)
	if err != nil {
		return err
	}
	d.Image = small.Name
	if len(d.Packages) == 0 {
		return nil
	}
	var file bytes.Buffer
	fmt.Fprintf(&file, "FROM %s\nRUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends %s && rm "+
		"-rf /var/lib/apt/lists/* /var/cache/apt/*\n",
		small.Name, strings.Join(d.Packages, " "))
	h := sha256.Sum256(append([]byte(small.ID+"\n"), file.Bytes()...))
	d.Image = fmt.Sprintf("%s:%.*x", repository, hashBytes, h)
	return images.Derive(ctx, d.Image, file.Bytes(), b.Progress)
}

// hashBytes is how many bytes of a hash are part of a name.
const hashBytes = 8

// root unpacks the programs of an image into a shared directory, and links to it from the artifact in dir, which is renamed to the path to.
func (b *Builder) root(ctx context.Context, image, dir, to string) error {
	roots := filepath.Join(b.State, rootsDir)
	if err := os.MkdirAll(roots, 0o700); err != nil {
		return fmt.Errorf("make the root directory: %w", err)
	}
	_, id, _ := strings.Cut(image, ":")
	root := filepath.Join(roots, id)
	lock, err := lockfile.Take(ctx, root+lockOf)
	if err != nil {
		return fmt.Errorf("make the root directory: %w", err)
	}
	defer lock.Release()
	if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
		if err := b.unpack(ctx, image, root); err != nil {
			return fmt.Errorf("make the root directory: %w", err)
		}
	} else if err != nil {
		return fmt.Errorf("make the root directory: %w", err)
	}
	if err := noteUser(root, to); err != nil {
		return fmt.Errorf("make the root directory: %w", err)
	}
	return os.Symlink(root, filepath.Join(dir, rootLink))
}

// unpack creates a root directory atomically.
func (b *Builder) unpack(ctx context.Context, image, root string) (err error) {
	images, err := b.Images()
	if err != nil {
		return err
	}
	made, err := os.MkdirTemp(filepath.Dir(root), newRoot)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(made)) }()
	if err := images.Root(ctx, image, made); err != nil {
		return err
	}
	if err := os.Chmod(made, 0o755); err != nil { // commands of a jail run as another user
		return err
	}
	return os.Rename(made, root)
}

// Files beside a root directory, by its name: the lock, and the artifacts that link to it.
const (
	rootsDir  = "roots"
	lockOf    = ".lock"
	usersOf   = ".users"
	userLines = "\n"
)

// newRoot begins the name of an incomplete root directory.
const newRoot = ".new-"

// young is longer than the rest of a build takes.
const young = time.Hour

// noteUser records that an artifact links to a root directory. The caller holds the root's lock.
func noteUser(root, artifact string) error {
	f, err := os.OpenFile(root+usersOf, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(artifact + userLines)
	return errors.Join(err, f.Close())
}

// Unused returns the root directories in a state directory to which no artifact links.
func Unused(state string) (roots []string, err error) {
	list, err := os.ReadDir(filepath.Join(state, rootsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range list {
		root := filepath.Join(state, rootsDir, e.Name())
		if e.IsDir() && !used(root) {
			roots = append(roots, root)
		}
	}
	return roots, err
}

// used reports whether a local artifact links to a root directory, or whether the root is being unpacked.
func used(root string) bool {
	if strings.HasPrefix(filepath.Base(root), newRoot) {
		st, err := os.Stat(root)
		return err == nil && time.Since(st.ModTime()) < young // an older one is of a build that was killed
	}
	st, err := os.Stat(root + usersOf)
	if err == nil && time.Since(st.ModTime()) < young {
		return true // a new artifact is renamed to its path only later
	}
	b, err := os.ReadFile(root + usersOf)
	if err != nil {
		return false
	}
	for dir := range strings.SplitSeq(strings.TrimSuffix(string(b), userLines), userLines) {
		if to, err := os.Readlink(filepath.Join(dir, rootLink)); err == nil && to == root {
			return true
		}
	}
	return false
}

// RemoveUnused removes one of Unused, unless an artifact links to it by now.
func RemoveUnused(ctx context.Context, root string) error {
	lock, err := lockfile.Take(ctx, root+lockOf)
	if err != nil {
		return fmt.Errorf("remove the root directory %s: %w", root, err)
	}
	if used(root) {
		lock.Release()
		return nil
	}
	err = errors.Join(os.RemoveAll(root), os.RemoveAll(root+usersOf))
	lock.Remove()
	if err != nil {
		return fmt.Errorf("remove the root directory %s: %w", root, err)
	}
	return nil
}
