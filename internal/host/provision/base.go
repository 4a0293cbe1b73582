package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/filters"
	imagetypes "github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	registryBase = "ubuntu:24.04"
	// baseRepository is the name of bases from a package archive, and of bases that an administrator adds with `docker tag`.
	baseRepository = "sandbox-agent/base"
	answerDeadline = 20 * time.Second // bounds the wait for a registry's first answer
)

// base returns the base image: a local one, else the registry's, else a new one from the package archive.
func (b *builder) base(ctx context.Context, host host) (string, error) {
	found, err := b.localBase(ctx)
	if err != nil || found != "" {
		return found, err
	}
	pullErr := b.pull(ctx, registryBase)
	if pullErr == nil {
		return registryBase, nil
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("pull %s: %w", registryBase, context.Cause(ctx))
	}
	b.warn("%s: %v; creating a base from the package archive instead", registryBase, pullErr)
	name, err := b.bootstrap(ctx, host)
	if err == nil {
		return name, nil
	}
	return "", exiterr.New(workorder.ExitBox, fmt.Errorf("no base for the image: %w; %w", pullErr, err),
		fmt.Sprintf("connect the engine to a registry, or load an Ubuntu 24.04 or Debian 13 base and name it: docker tag "+
			"BASE %s:local", baseRepository))
}

func (b *builder) localBase(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	sum, err := b.engine.ImageList(ctx, imagetypes.ListOptions{Filters: filters.NewArgs(filters.Arg("reference", baseRepository))})
	if err != nil {
		return "", fmt.Errorf("list base images: %w", err)
	}
	var newest imagetypes.Summary
	for _, s := range sum {
		if len(s.RepoTags) > 0 && s.Created >= newest.Created {
			newest = s
		}
	}
	if len(newest.RepoTags) > 0 {
		return newest.RepoTags[0], nil
	}
	switch _, err := b.engine.ImageInspect(ctx, registryBase); {
	case err == nil:
		return registryBase, nil
	case cerrdefs.IsNotFound(err):
		return "", nil
	default:
		return "", fmt.Errorf("inspect image %s: %w", registryBase, err)
	}
}

// Reasons why a base could not be pulled.
var (
	errUnreachable = errors.New("registry unreachable")
	errDenied      = errors.New("registry refused")
)

// pull pulls an image of a registry. Its first message is due soon; the rest may take as long as the whole build.
func (b *builder) pull(ctx context.Context, ref string) error {
	b.say("pulling %s", ref)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	first := time.AfterFunc(answerDeadline, func() {
		cancel(fmt.Errorf("%w within %s", errUnreachable, answerDeadline))
	})
	defer first.Stop()
	body, err := b.engine.ImagePull(ctx, ref, imagetypes.PullOptions{Platform: "linux/" + b.arch})
	if err != nil {
		return classify(orCause(ctx, err))
	}
	defer body.Close()
	return classify(orCause(ctx, drain(body, func() { first.Stop() })))
}

// drain reads progress messages to their end, and calls answered at each one.
func drain(r io.Reader, answered func()) error {
	dec := json.NewDecoder(r)
	for {
		var m message
		switch err := dec.Decode(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the engine's progress: %w", err)
		case m.Error != "":
			return errors.New(strings.TrimSpace(m.Error))
		}
		answered()
	}
}

// classify distinguishes a refusal by the registry from an unreachable one. The engine returns only a text.
func classify(err error) error {
	if err == nil || errors.Is(err, errUnreachable) {
		return err
	}
	text := strings.ToLower(err.Error())
	for _, word := range []string{"unauthorized", "denied", "toomanyrequests", "forbidden", "not found", "manifest unknown", "403"} {
		if strings.Contains(text, word) {
			return fmt.Errorf("%w: %w", errDenied, err)
		}
	}
	return fmt.Errorf("%w: %w", errUnreachable, err)
}

// EnsureBase returns the name of the default image's base, and creates it if it is missing. Small images of services can be
// built on it, too: its package sources are reachable.
func EnsureBase(ctx context.Context, engine Engine, o Options) (string, error) {
	if o.Progress == nil {
		o.Progress = func(workorder.Event) {}
	}
	arch, err := architecture(ctx, engine, o.Arch)
	if err != nil {
		return "", err
	}
	unlock, _, err := lock(ctx, o.StateDir, imageLock, o.Progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, buildDeadline, fmt.Errorf("base not created within %s", buildDeadline))
	defer cancel()
	b := builder{engine: engine, arch: arch, o: o}
	return b.base(ctx, readHost(ctx))
}

// caDir is the directory for certificates added by an administrator, on Debian and Ubuntu.
const caDir = "/usr/local/share/ca-certificates"

const npmDeadline = 10 * time.Second // npm starts in under a second

// host has the settings by which this machine reaches package archives, for builds in containers.
type host struct {
	cas      map[string][]byte
	registry string
	proxies  map[string]string
}

func readHost(ctx context.Context) host {
	return host{
		cas:      certificates(caDir),
		registry: NPMRegistry(ctx),
		proxies:  proxies(os.Environ()),
	}
}

// certificates reads the *.crt files under dir. It skips unreadable files: a build that needs one fails with a clear message.
func certificates(dir string) map[string][]byte {
	found := map[string][]byte{}
	// The image's directory is flat, and so are the names.
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".crt" {
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return nil
		}
		if b, err := os.ReadFile(path); err == nil {
			found[strings.ReplaceAll(rel, string(filepath.Separator), "-")] = b
		}
		return nil
	})
	return found
}

// NPMRegistry returns this machine's npm registry without credentials; "" if unknown.
func NPMRegistry(ctx context.Context) string { return withoutUser(registry(ctx, os.Getenv)) }

// registry returns npm's variable, else npm's answer; "" if unknown. The image's build then looks for one.
func registry(ctx context.Context, getenv func(string) string) string {
	for _, k := range []string{"npm_config_registry", "NPM_CONFIG_REGISTRY"} {
		if v := getenv(k); v != "" {
			return v
		}
	}
	ctx, cancel := context.WithTimeout(ctx, npmDeadline)
	defer cancel()
	out, err := proc.Output(ctx, proc.Spec{Argv: []string{"npm", "config", "get", "registry"}, Dir: os.TempDir()})
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// withoutUser removes credentials from a URL, which would stay in the image.
func withoutUser(s string) string {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return ""
	}
	u.User = nil
	return u.String()
}

// proxies returns the proxy variables. The builder takes them as build arguments and does not store them in the image.
func proxies(environ []string) map[string]string {
	found := map[string]string{}
	for _, kv := range environ {
		k, v, _ := strings.Cut(kv, "=")
		switch strings.ToLower(k) {
		case "http_proxy", "https_proxy", "no_proxy", "ftp_proxy", "all_proxy":
			if v != "" {
				found[k] = v
			}
		}
	}
	return found
}
