package roles

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/hardening"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/tools"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// logs returns the directory of the run's logs.
func (p *parts) logs() string { return filepath.Join(p.paths.out, workorder.LogsDir) }

// logFile opens a log of the box that redacts secrets.
func (p *parts) logFile(name string) func() (io.WriteCloser, error) {
	return func() (io.WriteCloser, error) {
		f, err := os.Create(filepath.Join(p.logs(), name))
		if err != nil {
			return nil, err
		}
		return &cleanFile{WriteCloser: p.mask.Load().Writer(f), file: f}, nil
	}
}

type cleanFile struct {
	io.WriteCloser
	file *os.File
}

func (c *cleanFile) Close() error {
	defer c.file.Close()
	return c.WriteCloser.Close()
}

// packages implements boot.Packages.
type packages struct {
	log func() (io.WriteCloser, error)
}

func (p packages) Install(ctx context.Context, names []string) error {
	log, err := p.log()
	if err != nil {
		return fmt.Errorf("install packages: %w", err)
	}
	defer log.Close()
	return (&tools.Apt{Log: log}).Install(ctx, names)
}

// tools returns the order's tools.
func (p *parts) tools() *tools.Tools {
	t := imageTools(p.logFile("tools.log"))
	t.User, t.Commands = p.user, cmp.Or(p.order.Env["PATH"], t.Commands)
	return t
}

func imageTools(log func() (io.WriteCloser, error)) *tools.Tools {
	path := os.Getenv("PATH")
	return &tools.Tools{Dir: tools.Dir, Path: tools.Trusted(path, workorder.SandboxHome, workorder.Workspace), Commands: path, Log: log}
}

// Prepare installs packages, or tools as NAME=VERSIONS, into an image that is being built from the box image.
func Prepare(ctx context.Context, kind string, names []string) error {
	switch kind {
	case "packages":
		m := &tools.Apt{Log: os.Stdout}
		if err := m.Install(ctx, names); err != nil {
			return err
		}
		return m.Clean(ctx)
	case "tools":
		asked := map[string]string{}
		for _, n := range names {
			name, versions, _ := strings.Cut(n, "=")
			asked[name] = versions
		}
		user, err := hardening.User(workorder.SandboxUser, nil)
		if err != nil {
			return err
		}
		t := imageTools(func() (io.WriteCloser, error) { return os.Stdout, nil })
		t.User = user
		_, err = t.Install(ctx, asked)
		return err
	}
	return fmt.Errorf("prepare %q: must be packages or tools", kind)
}
