package docker

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

type endpoint struct {
	host   string
	tlsDir string // of ca.pem, cert.pem and key.pem; may be empty
}

// currentEndpoint finds the engine as the docker command does: DOCKER_HOST, then DOCKER_CONTEXT, then the current context of
// the docker configuration. An empty host is the platform's default socket.
func currentEndpoint(getenv func(string) string) (endpoint, error) {
	if h := getenv("DOCKER_HOST"); h != "" {
		e := endpoint{host: h}
		if getenv("DOCKER_TLS_VERIFY") != "" {
			e.tlsDir = getenv("DOCKER_CERT_PATH")
		}
		return e, nil
	}
	dir := cmp.Or(getenv("DOCKER_CONFIG"), filepath.Join(getenv("HOME"), ".docker"))
	name := getenv("DOCKER_CONTEXT")
	if name == "" {
		var err error
		if name, err = currentContext(dir); err != nil {
			return endpoint{}, err
		}
	}
	if name == "" || name == "default" {
		return endpoint{}, nil
	}
	return contextEndpoint(dir, name)
}

func currentContext(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read docker configuration: %w", err)
	}
	var cfg struct {
		CurrentContext string `json:"currentContext"`
	}
	if err := json.Unmarshal(b, &cfg); err != nil {
		return "", fmt.Errorf("read docker configuration %s: %w", filepath.Join(dir, "config.json"), err)
	}
	return cfg.CurrentContext, nil
}

func contextEndpoint(dir, name string) (endpoint, error) {
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(name))) // the context's directory
	b, err := os.ReadFile(filepath.Join(dir, "contexts", "meta", id, "meta.json"))
	if err != nil {
		return endpoint{}, fmt.Errorf("read docker context %q: %w", name, err)
	}
	var meta struct {
		Endpoints map[string]struct {
			Host string
		}
	}
	if err := json.Unmarshal(b, &meta); err != nil {
		return endpoint{}, fmt.Errorf("read docker context %q: %w", name, err)
	}
	d, ok := meta.Endpoints["docker"]
	if !ok || d.Host == "" {
		return endpoint{}, fmt.Errorf("docker context %q has no docker endpoint", name)
	}
	e := endpoint{host: d.Host}
	tls := filepath.Join(dir, "contexts", "tls", id, "docker")
	if _, err := os.Stat(filepath.Join(tls, "ca.pem")); err == nil {
		e.tlsDir = tls
	}
	return e, nil
}
