package provision

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// caFolder is the folder of Debian and Ubuntu for certificates that an administrator added.
const caFolder = "/usr/local/share/ca-certificates"

// npmDeadline bounds asking npm for its registry; npm starts in under a second.
const npmDeadline = 10 * time.Second

// host has the settings by which this machine reaches its archives. A build in a container needs the same.
type host struct {
	cas      map[string][]byte
	registry string
	proxies  map[string]string
}

func readHost(ctx context.Context) host {
	return host{
		cas:      certificates(caFolder),
		registry: NPMRegistry(ctx),
		proxies:  proxies(os.Environ()),
	}
}

// certificates reads the *.crt files under dir. It skips unreadable files: the build then
// fails on the connection that needed one, with a clear message.
func certificates(dir string) map[string][]byte {
	found := map[string][]byte{}
	// The folder may have sub-folders; the image's has none, so the names are flattened.
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

// NPMRegistry is the npm registry that this machine uses, without credentials; "" if unknown.
func NPMRegistry(ctx context.Context) string { return withoutUser(registry(ctx, os.Getenv)) }

// registry is the npm registry that this machine uses: npm's own variable, else npm's
// answer. It is empty if unknown; the image's build then looks for one.
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

// withoutUser removes the credentials from a URL: they would stay in the image.
func withoutUser(s string) string {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return ""
	}
	u.User = nil
	return u.String()
}

// proxies selects the variables that the builder takes as build arguments and does not
// store in the image and its history.
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
