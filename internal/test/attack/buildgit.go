package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// builtFromGit has the engine build from a repository on loopback; through: a git asked for it, which would be root's.
// URL, DIR and DOCKERFILE stand for the repository, a directory and a file in it that uses the named context x.
func builtFromGit(args ...string) (string, bool) {
	var asked atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.UserAgent(), "git/") {
			asked.Store(true)
		}
		http.NotFound(w, r)
	}))
	defer srv.Close()
	dir, err := os.MkdirTemp("", "attack-build-")
	if err != nil {
		return short(err), true
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "Dockerfile")
	if err := os.WriteFile(file, []byte("FROM scratch\nCOPY --from=x / /\n"), 0o600); err != nil {
		return short(err), true
	}
	stands := strings.NewReplacer("URL", srv.URL+"/x.git", "DOCKERFILE", file, "DIR", dir)
	argv := []string{"env", "DOCKER_BUILDKIT=1", "docker"} // without it, and without buildx, the client's own git fetches as the agent
	for _, a := range args {
		argv = append(argv, stands.Replace(a))
	}
	got, built := execute(argv...)
	return got, built || asked.Load()
}
