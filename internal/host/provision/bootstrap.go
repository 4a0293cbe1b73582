package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	imagetypes "github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	bootstrapDeadline = 15 * time.Minute // about a hundred packages
	bootstrapGrace    = 5 * time.Second  // for debootstrap to unmount its mounts
)

// bootstrap creates a base from the host's package archive, and imports it under a name that later builds find.
func (b *builder) bootstrap(ctx context.Context, host host) (string, error) {
	p, err := planHere()
	if err != nil {
		return "", fmt.Errorf("create a base: %w", err)
	}
	if os.Geteuid() != 0 {
		return "", errors.New("create a base: only root can run debootstrap")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bootstrapDeadline, fmt.Errorf("base not created within %s", bootstrapDeadline))
	defer cancel()
	name := baseRepository + ":" + p.distro + "-" + p.suite
	b.say("creating the base %s with debootstrap", name)
	root, err := os.MkdirTemp(b.o.StateDir, "base-")
	if err != nil {
		return "", fmt.Errorf("create a base: %w", err)
	}
	defer os.RemoveAll(root) // gc removes the rest of a killed process
	// The state directory may be private; apt in the base runs as another user.
	if err := os.Chmod(root, 0o755); err != nil {
		return "", fmt.Errorf("create a base: %w", err)
	}
	tail := proc.NewTail(tailBytes)
	err = proc.Run(ctx, proc.Spec{
		Argv: p.debootstrap(b.arch, root), Env: bootstrapEnv(os.Environ(), host.proxies),
		Stdout: tail, Stderr: tail, Grace: bootstrapGrace,
	})
	if err != nil {
		return "", fmt.Errorf("create a base: %w\nlast output:\n%s", err, strings.TrimSpace(tail.String()))
	}
	if err := prepare(root, p.sources); err != nil {
		return "", fmt.Errorf("create a base: %w", err)
	}
	if err := b.importDir(ctx, root, name); err != nil {
		return "", fmt.Errorf("import the base %s: %w", name, err)
	}
	return name, nil
}

func (p plan) debootstrap(arch, root string) []string {
	argv := []string{"debootstrap", "--variant=minbase", "--include=ca-certificates", "--arch=" + arch}
	if p.trusted {
		argv = append(argv, "--no-check-gpg")
	} else if p.keyring != "" {
		argv = append(argv, "--keyring="+p.keyring)
	}
	return append(argv, p.suite, root, p.mirror)
}

// bootstrapEnv adds PATH's system directories, which a user's shell may lack, and the proxies.
func bootstrapEnv(environ []string, proxies map[string]string) []string {
	env := slices.DeleteFunc(slices.Clone(environ), func(kv string) bool { return strings.HasPrefix(kv, "PATH=") })
	env = append(env, "PATH="+os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin", "DEBIAN_FRONTEND=noninteractive")
	for _, k := range sortedKeys(proxies) {
		// wget reads only the lower-case names.
		env = append(env, strings.ToLower(k)+"="+proxies[k])
	}
	return env
}

// prepare writes the base's package sources and removes unneeded files.
func prepare(root, sources string) error {
	apt := filepath.Join(root, "etc/apt")
	if err := os.WriteFile(filepath.Join(apt, "sources.list"), []byte(sources), 0o644); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(apt, "sources.list.d/*"))
	if err != nil {
		return err
	}
	for _, pattern := range []string{
		"var/cache/apt/*", "var/lib/apt/lists/*", "usr/share/doc/*", "usr/share/man/*", "usr/share/locale/*",
		"var/log/*.log",
	} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		old = append(old, found...)
	}
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) importDir(ctx context.Context, root, name string) error {
	pr, pw := io.Pipe()
	defer pr.Close() // ends tar if the engine stopped reading
	tail := proc.NewTail(tailBytes)
	tar, err := proc.Start(ctx, proc.Spec{Argv: []string{"tar", "--numeric-owner", "-C", root, "-c", "."}, Stdout: pw, Stderr: tail})
	if err != nil {
		return err
	}
	go func() { pw.CloseWithError(tar.Wait()) }()
	body, err := b.engine.ImageImport(ctx, imagetypes.ImportSource{Source: pr, SourceName: "-"}, name,
		imagetypes.ImportOptions{Platform: "linux/" + b.arch, Message: "made from the package archive"})
	if err != nil {
		return orCause(ctx, err)
	}
	defer body.Close()
	return orCause(ctx, drain(body, func() {}))
}

func planHere() (plan, error) {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return plan{}, fmt.Errorf("read the distribution's name: %w", err)
	}
	files := map[string]string{}
	for _, pattern := range []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return plan{}, err
		}
		for _, path := range found {
			b, err := os.ReadFile(path)
			if err != nil {
				return plan{}, fmt.Errorf("read apt's sources: %w", err)
			}
			files[path] = string(b)
		}
	}
	osr := osRelease(string(release))
	return planBase(osr["ID"], strings.Fields(osr["ID_LIKE"]), osr["VERSION_CODENAME"], parseSources(files))
}

func osRelease(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			fields[k] = strings.Trim(v, `"'`)
		}
	}
	return fields
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
