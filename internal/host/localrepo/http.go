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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

const (
	uploadPack     = "git-upload-pack"
	receivePack    = "git-receive-pack"
	serviceTimeout = 30 * time.Minute // bounds one request: a clone of gigabytes
	serviceGrace   = 2 * time.Second  // git's time for a cleanup after the client's disconnect
)

// Options configure a Handler.
type Options struct {
	Repo         string // Repo.Path
	Token        string // the password; the user name is ignored
	TaskID       string
	TargetBranch string
	Log          *slog.Logger
}

// handler serves git's smart HTTP with git's own services. Unlike `git http-backend`, it uses no path from the client, streams
// bodies of any length, and checks a push's commands before git reads them.
type handler struct {
	o    Options
	keep []string // options of receive-pack for a small push
}

// NewHandler serves the repository at /repo.git.
func NewHandler(ctx context.Context, o Options) (http.Handler, error) {
	if o.Repo == "" || o.Token == "" || o.TaskID == "" || o.TargetBranch == "" {
		return nil, errors.New("serve repository: repository, token, task and branch are all needed")
	}
	h := &handler{o, keepPack}
	if streamsObjects(ctx, o.Repo) {
		h.keep = keepObjects
	}
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
	h.run(w, r, service, nil, nil, "--advertise-refs")
}

func (h *handler) upload(w http.ResponseWriter, r *http.Request) {
	body, err := body(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-"+uploadPack+"-result")
	h.run(w, r, uploadPack, nil, body)
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
		// Read to the end first: git reports a network error if the connection closes while it sends.
		_, _ = io.Copy(io.Discard, in)
		_, _ = io.WriteString(w, cmds.refusal(bad))
		return
	}
	keep := h.keep
	if r.ContentLength < 0 { // more than 1 MiB (http.postBuffer): unpacking takes longer than the push
		keep = keepPack
	}
	// A push that has arrived is completed, even if its sender has died.
	h.run(w, r.WithContext(context.WithoutCancel(r.Context())), receivePack, keep, io.MultiReader(strings.NewReader(head), in))
	h.o.Log.Info("push", "refs", cmds.refs)
}

// body returns the request's content, decompressed if necessary.
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
var gitProtocol = lazyregexp.New(`^[a-z0-9=:.]{1,64}$`)

// servicePolicy takes precedence over the repository's configuration. A push may rewind the run's refs, as checkpoints do, but not a
// checked-out branch, and must not contain objects that are harmful in a checkout.
var servicePolicy = append(checked("receive"),
	"-c", "receive.denyCurrentBranch=refuse", "-c", "receive.denyNonFastForwards=false", "-c", "receive.denyDeletes=false",
	"-c", "uploadpack.allowFilter=true", "-c", "receive.maxInputSize=0",
)

// Objects are synced before refs move. A small push becomes objects, not a pack: each pack of a repository costs every git command time.
var (
	keepObjects = []string{"-c", "receive.unpackLimit=100", "-c", "core.fsync=committed"}
	keepPack    = []string{"-c", "receive.unpackLimit=1"}
)

// streamsObjects reports whether git can sync objects outside of packs, and unpacks them without holding whole files in memory.
func streamsObjects(ctx context.Context, repo string) bool {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	out, err := gitOut(ctx, repo, "version")
	var major, minor int
	if err == nil {
		_, err = fmt.Sscanf(out, "git version %d.%d", &major, &minor)
	}
	return err == nil && (major > 2 || major == 2 && minor >= 38)
}

// checked makes git check incoming objects in an operation (receive, fetch). The ignored faults come from old tools and are harmless.
func checked(what string) []string {
	args := []string{"-c", what + ".fsckObjects=true"}
	for _, fault := range []string{"zeroPaddedFilemode", "missingSpaceBeforeDate", "badTimezone"} {
		args = append(args, "-c", what+".fsck."+fault+"=warn")
	}
	return args
}

func (h *handler) run(w http.ResponseWriter, r *http.Request, service string, options []string, in io.Reader, flags ...string) {
	ctx, cancel := context.WithTimeout(r.Context(), serviceTimeout)
	defer cancel()
	args := slices.Concat(servicePolicy, options, []string{strings.TrimPrefix(service, "git-"), "--stateless-rpc"}, flags, []string{h.o.Repo})
	repo := Git(h.o.Repo)
	if p := r.Header.Get("Git-Protocol"); gitProtocol.MatchString(p) {
		repo.Env = append(repo.Env, "GIT_PROTOCOL="+p)
	}
	said, err := repo.Stream(ctx, in, flushWriter{w}, serviceGrace, args...)
	if err != nil && r.Context().Err() == nil {
		h.o.Log.Warn("git service", "service", service, "error", err, "stderr", said)
	}
}

// flushWriter sends git's output immediately: progress, and the end of a long push.
type flushWriter struct{ w http.ResponseWriter }

func (f flushWriter) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if fl, ok := f.w.(http.Flusher); ok && err == nil {
		fl.Flush()
	}
	return n, err
}

const (
	maxCommands = 1000  // refs of one push
	maxPkt      = 65520 // the longest line of git's protocol
)

type commands struct {
	refs     []string
	caps     string
	sideband bool
	cert     bool
}

// readCommands reads the command list of a push, and returns it also verbatim.
func readCommands(r io.Reader) (verbatim string, c commands, err error) {
	var b strings.Builder
	size := make([]byte, 4)
	for {
		if _, err := io.ReadFull(r, size); err != nil {
			if errors.Is(err, io.EOF) && b.Len() == 0 {
				return "", c, nil
			}
			return "", c, err
		}
		b.Write(size)
		n, err := strconv.ParseUint(string(size), 16, 16)
		if err != nil {
			return "", c, fmt.Errorf("bad line length %q", size)
		}
		if n == 0 {
			return b.String(), c, nil
		}
		if n < 4 || n > maxPkt {
			return "", c, fmt.Errorf("bad line length %d", n)
		}
		line := make([]byte, n-4)
		if _, err := io.ReadFull(r, line); err != nil {
			return "", c, err
		}
		b.Write(line)
		if err := c.add(string(line)); err != nil {
			return "", c, err
		}
	}
}

func (c *commands) add(line string) error {
	cmd, caps, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\x00")
	if caps != "" {
		c.caps = caps
		c.sideband = strings.Contains(" "+caps+" ", " side-band-64k ")
	}
	f := strings.SplitN(cmd, " ", 3)
	switch {
	case f[0] == "shallow":
		return nil
	case f[0] == "push-cert":
		c.cert = true
		return nil
	case len(f) != 3:
		if c.cert {
			return nil // refused as a whole
		}
		return fmt.Errorf("bad command %q", cmd)
	case len(c.refs) == maxCommands:
		return fmt.Errorf("more than %d refs in one push", maxCommands)
	}
	c.refs = append(c.refs, strings.TrimSuffix(f[2], "\n"))
	return nil
}

// forbidden lists the forbidden commands of the push.
func (c *commands) forbidden(taskID, branch string) []string {
	var bad []string
	if c.cert {
		bad = append(bad, "a signed push")
	}
	for _, ref := range c.refs {
		if !allowedRef(ref, taskID, branch) {
			bad = append(bad, ref)
		}
	}
	return bad
}

// allowedRef reports whether the run may write the ref: its branch, and the refs below its own prefix.
func allowedRef(ref, taskID, branch string) bool {
	own := "refs/sandbox-agent/" + taskID + "/"
	return ref == "refs/heads/"+branch || strings.HasPrefix(ref, own) && len(ref) > len(own)
}

// refusal answers a push in git's protocol, so that git shows the reason for each ref.
func (c *commands) refusal(bad []string) string {
	report := pkt("unpack ok\n")
	for _, ref := range c.refs {
		report += pkt("ng " + ref + " this run may only push its own branch\n")
	}
	report += "0000"
	if !c.sideband {
		return report
	}
	msg := "refused: " + strings.Join(bad, ", ") + "\n"
	out := pkt("\x02" + msg[:min(len(msg), 900)])
	for len(report) > 0 {
		n := min(len(report), maxPkt-5) // minus the bytes of length and band
		out, report = out+pkt("\x01"+report[:n]), report[n:]
	}
	return out + "0000"
}

func pkt(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
