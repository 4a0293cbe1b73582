package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ModelCall is a call of a model gateway.
type ModelCall struct {
	Time       time.Time `json:"time"`
	API        string    `json:"api"`
	Model      string    `json:"model"`
	Path       string    `json:"path"`
	Status     int       `json:"status"` // 0 if there was no answer
	Input      int64     `json:"input_tokens"`
	Output     int64     `json:"output_tokens"`
	CacheRead  int64     `json:"cache_read_tokens"`
	CacheWrite int64     `json:"cache_write_tokens"`
	CostUSD    *float64  `json:"cost_usd"`
	Millis     int64     `json:"duration_ms"`
	Refused    string    `json:"refused"`
}

// ModelCalls returns the calls of the model gateway of a task's attempt, or of a sandbox, which may be gone; raw has them as
// they were written, a JSON document per line. attempt is for tasks; 0 is the last one.
func ModelCalls(ctx context.Context, e *Env, name string, attempt int) (calls []ModelCall, raw []byte, err error) {
	if raw, err = rawCalls(ctx, e, name, attempt); err != nil {
		return nil, nil, err
	}
	for line := range bytes.Lines(raw) {
		var c ModelCall
		if json.Unmarshal(line, &c) == nil && !c.Time.IsZero() { // the last line may be incomplete
			calls = append(calls, c)
		}
	}
	return calls, raw, nil
}

func rawCalls(ctx context.Context, e *Env, name string, attempt int) ([]byte, error) {
	if sandbox.ValidName(name) {
		m, err := e.Manager(false)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		b, err := m.ModelCalls(ctx, name)
		if err != nil {
			return nil, SandboxError(err)
		}
		history, err := e.Sandboxes().History(ctx, name)
		if err != nil || len(b)+len(history) > 0 {
			return b, err
		}
	}
	rec, err := e.Tasks().RecordedAttempt(ctx, name, attempt)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(rec.Dir, workorder.ModelCallsFile))
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return b, err
	case rec.Collected || rec.Box == "":
		return nil, nil // without a gateway there is no file
	}
	be, err := e.Engine()
	if err != nil {
		return nil, err
	}
	b, err = runtime.ReadFile(ctx, runtime.CopierOf(be.Engine), rec.Box, workorder.OutDir+"/"+workorder.ModelCallsFile, sandboxstore.MaxCalls)
	if err != nil {
		return nil, exiterr.New(workorder.ExitBox, fmt.Errorf("read the calls of %s: %w", name, err), "")
	}
	return b, nil
}
