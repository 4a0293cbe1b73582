// Package companion runs the detached process that serves the local repository and the engine's images to a box. It ends
// with the box, so that killing the CLI does not harm the run.
package companion

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// Names and limits.
const (
	EndTime       = 2 * time.Second        // to complete pushes that have arrived
	LogFile       = "companion.log"        // in the task's directory
	startTimeout  = 15 * time.Second       // until the companion listens
	headerTimeout = 30 * time.Second       // for a client that sends nothing
	BoxName       = "host.docker.internal" // this machine, seen from the box
)

// Config is a companion's configuration, read from its standard input.
type Config struct {
	TaskID    string `json:"task_id"`
	AttemptID string `json:"attempt_id,omitempty"` // if empty any box of the task
	Dir       string `json:"dir"`                  // the task's directory
	Repo      string `json:"repo,omitempty"`
	// Repos are further repositories by name.
	Repos        map[string]string `json:"repos,omitempty"`
	TargetBranch string            `json:"target_branch,omitempty"`
	Listen       string            `json:"listen"`
	Images       []string          `json:"images,omitempty"`
	Token        string            `json:"token"`
	Parent       int               `json:"parent,omitempty"`        // the process that starts the box; 0 if unknown
	StandbyOwner string            `json:"standby_owner,omitempty"` // serve no task, but remove this owner's standbys after its end
}

// Ready is a companion's answer when it listens.
type Ready struct {
	PID   int    `json:"pid"`
	Port  int    `json:"port"`
	CA    string `json:"ca,omitempty"` // PEM certificate of the served repository
	Token string `json:"-"`
	Error string `json:"error,omitempty"`
}

// URL returns the address of a served repository, seen from the box; an empty name is that of Config.Repo.
func (r *Ready) URL(name string) string {
	base := fmt.Sprintf("https://%s:%d", BoxName, r.Port)
	if name != "" {
		base += furtherPath + name
	}
	return base + "/repo.git"
}

const furtherPath = "/repos/"

// Start starts a companion with the program exe, which must call Serve for argv.
func Start(ctx context.Context, exe string, argv []string, cfg Config) (Ready, error) {
	cfg.Token, cfg.Parent = rand.Text(), os.Getpid()
	in, err := json.Marshal(cfg)
	if err != nil {
		return Ready{}, err
	}
	log, err := os.OpenFile(filepath.Join(cfg.Dir, LogFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return Ready{}, fmt.Errorf("open companion log: %w", err)
	}
	defer log.Close()
	// Use pipes of the kernel: a copying goroutine would end with this process.
	inR, inW, err := os.Pipe()
	if err != nil {
		return Ready{}, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		inR.Close()
		inW.Close()
		return Ready{}, err
	}
	defer outR.Close()
	// The companion outlives this command and its context.
	p, err := proc.Start(context.WithoutCancel(ctx), proc.Spec{
		Argv: append([]string{exe}, argv...), Dir: "/", Stdin: inR, Stdout: outW, Stderr: log,
	})
	inR.Close()
	outW.Close()
	if err != nil {
		inW.Close()
		return Ready{}, err
	}
	_, err = inW.Write(append(in, '\n'))
	if err = errors.Join(err, inW.Close()); err == nil {
		var r Ready
		if r, err = readReady(ctx, outR); err == nil {
			r.PID, r.Token = p.PID(), cfg.Token
			return r, nil
		}
	}
	p.Signal(9)
	return Ready{}, err
}

func readReady(ctx context.Context, r *os.File) (Ready, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { r.Close() })
	defer stop()
	line, err := bufio.NewReader(r).ReadBytes('\n')
	if err != nil {
		return Ready{}, fmt.Errorf("the companion ended or did not answer for %s: %w", startTimeout, err)
	}
	var ready Ready
	if err := json.Unmarshal(line, &ready); err != nil {
		return Ready{}, err
	}
	if ready.Error != "" {
		return Ready{}, errors.New(ready.Error)
	}
	return ready, nil
}

// Serve reads the configuration from in, answers on out and returns when the box has ended or ctx ends.
func Serve(ctx context.Context, in io.Reader, out io.WriteCloser, eng runtime.Runtime, log *slog.Logger) error {
	var cfg Config
	if err := json.NewDecoder(in).Decode(&cfg); err != nil {
		return fmt.Errorf("read companion configuration: %w", err)
	}
	log = log.With("task", cfg.TaskID)
	ready := Ready{PID: os.Getpid()}
	srv, err := listen(ctx, cfg, &ready, log)
	if err != nil {
		ready.Error = err.Error()
	}
	// If the CLI has died, the run goes on without it.
	_ = json.NewEncoder(out).Encode(ready)
	out.Close()
	if err != nil {
		return err
	}
	if srv != nil {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), EndTime)
			defer cancel()
			if srv.Shutdown(ctx) != nil {
				srv.Close()
			}
		}()
	}
	if cfg.StandbyOwner != "" {
		return outlive(ctx, Standbys{eng, cfg.Dir}, cfg.StandbyOwner)
	}
	images, _ := eng.(runtime.ImageStore)
	w := &watcher{
		boxes: runtime.AttemptFilter{Follower: eng, ID: cfg.AttemptID}, cfg: cfg, log: log,
		carrier: ImageSender{Files: runtime.CopierOf(eng), Store: images, Images: cfg.Images, Dir: cfg.Dir, Log: log},
	}
	if err = w.run(ctx); ctx.Err() != nil {
		err = nil // the process that collects the output has ended it
	}
	log.Info("ends", "error", err)
	return err
}

func listen(ctx context.Context, cfg Config, ready *Ready, log *slog.Logger) (*http.Server, error) {
	repos := map[string]string{} // by their paths on the server
	if cfg.Repo != "" {
		repos[""] = cfg.Repo
	}
	for name, repo := range cfg.Repos {
		repos[furtherPath+name] = repo
	}
	if len(repos) == 0 {
		return nil, nil
	}
	mux := http.NewServeMux()
	for under, repo := range repos {
		h, err := localrepo.NewHandler(ctx, localrepo.Options{
			Repo: repo, Token: cfg.Token, TaskID: cfg.TaskID, TargetBranch: cfg.TargetBranch, Log: log,
		})
		if err != nil {
			return nil, err
		}
		mux.Handle(under+"/", http.StripPrefix(under, h))
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for the sandbox on %s: %w", cfg.Listen, err)
	}
	addr, ok := ln.Addr().(*net.TCPAddr)
	if !ok {
		ln.Close()
		return nil, fmt.Errorf("listen for the sandbox on %s: no port", cfg.Listen)
	}
	config, ca, err := certificate(BoxName, addr.IP.String())
	if err != nil {
		ln.Close()
		return nil, err
	}
	ready.Port, ready.CA = addr.Port, ca
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	go func() {
		if err := srv.Serve(tls.NewListener(ln, config)); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("serve the repository", "error", err)
		}
	}()
	log.Info("serves the repository", "repo", cfg.Repo, "repos", cfg.Repos, "address", ln.Addr().String())
	return srv, nil
}

const (
	certificateLife   = 365 * 24 * time.Hour // longer than any box lives
	certificateBefore = 24 * time.Hour       // for an engine whose clock is behind
)

// certificate generates a key and returns the PEM certificate that the box must expect, because other boxes on the
// engine's bridge could answer instead.
func certificate(names ...string) (*tls.Config, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, "", fmt.Errorf("generate a key for the sandbox: %w", err)
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sandbox-agent, for one run"},
		NotBefore: time.Now().Add(-certificateBefore), NotAfter: time.Now().Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, "", fmt.Errorf("create a certificate for the sandbox: %w", err)
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos: []string{"http/1.1"}, // git's services answer while the client still sends
	}
	return c, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), nil
}
