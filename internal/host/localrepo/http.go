package localrepo

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
	// serviceTimeout bounds one request: a clone of gigabytes over the bridge.
	serviceTimeout = 30 * time.Minute
	// serviceGrace is git's time to remove its quarantine when a client goes away.
	serviceGrace = 2 * time.Second
)

// Options say what is served, and to which task.
type Options struct {
	Repo         string // Repo.Path
	Token        string // the password; the user name is ignored
	TaskID       string
	TargetBranch string
	Log          *slog.Logger
}

// handler speaks smart HTTP by running git's two services itself. It deliberately does less than
// `git http-backend`: no path of the client reaches the file system, bodies of any length stream without
// a CGI in between, and the commands of a push are known before git sees it.
type handler struct{ o Options }

// NewHandler serves the repository at /repo.git.
func NewHandler(o Options) (http.Handler, error) {
	if o.Repo == "" || o.Token == "" || o.TaskID == "" || o.TargetBranch == "" {
		return nil, errors.New("serve repository: repository, token, task and branch are all needed")
	}
	h := &handler{o}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /repo.git/info/refs", h.refs)
	mux.HandleFunc("POST /repo.git/"+uploadPack, h.upload)
	mux.HandleFunc("POST /repo.git/"+receivePack, h.receive)
	return h.auth(mux), nil
}

func (h *handler) auth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pass, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(pass), []byte(h.o.Token)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="sandbox-agent"`)
			http.Error(w, "this repository is served to one run only", http.StatusUnauthorized)
			return
		}
		w.Header().Set("Cache-Control", "no-cache, max-age=0, must-revalidate")
		next.ServeHTTP(w, r)
	})
}

func (h *handler) refs(w http.ResponseWriter, r *http.Request) {
	service := r.URL.Query().Get("service")
	if service != uploadPack && service != receivePack {
		http.Error(w, "only smart HTTP is served", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/x-"+service+"-advertisement")
	if !strings.Contains(r.Header.Get("Git-Protocol"), "version=2") || service == receivePack {
		_, _ = io.WriteString(w, pkt("# service="+service+"\n")+"0000")
	}
	h.run(w, r, service, nil, "--advertise-refs")
}

func (h *handler) upload(w http.ResponseWriter, r *http.Request) {
	body, err := body(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-"+uploadPack+"-result")
	h.run(w, r, uploadPack, body)
}

func (h *handler) receive(w http.ResponseWriter, r *http.Request) {
	raw, err := body(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	in := bufio.NewReaderSize(raw, 64<<10)
	head, cmds, err := readCommands(in)
	if err != nil {
		http.Error(w, "read push: "+err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-"+receivePack+"-result")
	if bad := cmds.forbidden(h.o.TaskID, h.o.TargetBranch); len(bad) > 0 {
		h.o.Log.Warn("push refused", "refs", bad)
		// Read to the end first: if the connection closes while git still sends, git reports a network error.
		_, _ = io.Copy(io.Discard, in)
		_, _ = io.WriteString(w, cmds.refusal(bad))
		return
	}
	h.run(w, r, receivePack, io.MultiReader(strings.NewReader(head), in))
	h.o.Log.Info("push", "refs", cmds.refs)
}

// body is the request's content, unpacked if the client compressed it.
func body(r *http.Request) (io.Reader, error) {
	switch enc := r.Header.Get("Content-Encoding"); enc {
	case "":
		return r.Body, nil
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, fmt.Errorf("unpack request: %w", err)
		}
		return z, nil
	default:
		return nil, fmt.Errorf("content encoding %q is not known", enc)
	}
}

// gitProtocol matches the allowed values of Git-Protocol, which becomes an environment variable of git.
var gitProtocol = regexp.MustCompile(`^[a-z0-9=:.]{1,64}$`)

// servicePolicy overrides the repository's own configuration, as git's command line has
// precedence. A push may rewind the run's own refs (checkpoints do), but not a checked-out
// branch, and must not bring objects that do harm when they are checked out.
var servicePolicy = append(checked("receive"),
	"-c", "receive.denyCurrentBranch=refuse", "-c", "receive.denyNonFastForwards=false", "-c", "receive.denyDeletes=false",
	"-c", "uploadpack.allowFilter=true", "-c", "receive.unpackLimit=1", "-c", "receive.maxInputSize=0",
)

// checked makes git check incoming objects in an operation (receive, fetch). The ignored
// faults come from old tools; they are common and harmless.
func checked(what string) []string {
	args := []string{"-c", what + ".fsckObjects=true"}
	for _, fault := range []string{"zeroPaddedFilemode", "missingSpaceBeforeDate", "badTimezone"} {
		args = append(args, "-c", what+".fsck."+fault+"=warn")
	}
	return args
}

func (h *handler) run(w http.ResponseWriter, r *http.Request, service string, in io.Reader, flags ...string) {
	ctx, cancel := context.WithTimeout(r.Context(), serviceTimeout)
	defer cancel()
	args := append(slices.Clone(servicePolicy), strings.TrimPrefix(service, "git-"), "--stateless-rpc")
	args = append(append(args, flags...), h.o.Repo)
	repo := Git(h.o.Repo)
	if p := r.Header.Get("Git-Protocol"); gitProtocol.MatchString(p) {
		repo.Env = append(repo.Env, "GIT_PROTOCOL="+p)
	}
	said, err := repo.Stream(ctx, in, flushWriter{w}, serviceGrace, args...)
	if err != nil && r.Context().Err() == nil {
		h.o.Log.Warn("git service", "service", service, "error", err, "stderr", said)
	}
}

// flushWriter sends git's output at once: progress, and the end of a long push.
type flushWriter struct{ w http.ResponseWriter }

func (f flushWriter) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if fl, ok := f.w.(http.Flusher); ok && err == nil {
		fl.Flush()
	}
	return n, err
}
