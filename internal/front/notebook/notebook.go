// Package notebook fills in the outputs of a notebook by running its cells in a session.
//
// A notebook is a file of Jupyter's format, version 4. What this package does not know of it stays as it is.
package notebook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// MaxFile bounds a notebook, in bytes: pictures are in it.
const MaxFile = 256 << 20

// ErrNotebook means that a file is no notebook that can be run.
var ErrNotebook = errors.New("not a notebook that can be run")

// object is a JSON object whose fields stay as they are.
type object map[string]json.RawMessage

// Notebook is one that was read.
type Notebook struct {
	root  object
	cells []cell
}

type cell struct {
	object
	code   bool
	source string
	tags   []string
}

// Parse reads a notebook. An ErrNotebook says all that is wrong with it.
func Parse(b []byte) (*Notebook, error) {
	if len(b) > MaxFile {
		return nil, fmt.Errorf("%w: it has %d bytes, more than %d", ErrNotebook, len(b), MaxFile)
	}
	n := &Notebook{}
	if err := json.Unmarshal(b, &n.root); err != nil {
		return nil, fmt.Errorf("%w: it is no JSON object: %w", ErrNotebook, err)
	}
	var version int
	switch err := json.Unmarshal(n.root["nbformat"], &version); {
	case err != nil:
		return nil, fmt.Errorf("%w: it does not say its nbformat", ErrNotebook)
	case version != 4:
		return nil, fmt.Errorf("%w: its nbformat is %d, and this program runs 4: `jupyter nbconvert --to notebook --nbformat 4` converts it",
			ErrNotebook, version)
	}
	var cells []object
	if err := json.Unmarshal(n.root["cells"], &cells); err != nil || cells == nil {
		return nil, fmt.Errorf("%w: its cells are no list of objects", ErrNotebook)
	}
	var errs []error
	for i, o := range cells {
		c, err := newCell(o)
		if err != nil && len(errs) < maxErrors {
			errs = append(errs, fmt.Errorf("cell %d %w", i+1, err))
		}
		n.cells = append(n.cells, c)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrNotebook, errors.Join(errs...))
	}
	return n, nil
}

// maxErrors bounds what is said of one notebook.
const maxErrors = 10

func newCell(o object) (c cell, err error) {
	if o == nil {
		return c, errors.New("is no object")
	}
	c.object = o
	var kind string
	if json.Unmarshal(o["cell_type"], &kind) != nil || kind == "" {
		return c, errors.New("does not say its cell_type")
	}
	if c.code = kind == "code"; !c.code {
		return c, nil
	}
	if c.source, err = lines(o["source"]); err != nil {
		return c, fmt.Errorf("has a source that is %w", err)
	}
	var meta struct {
		Tags []string `json:"tags"`
	}
	if json.Unmarshal(o["metadata"], &meta) == nil { // tags of another form are none
		c.tags = meta.Tags
	}
	return c, nil
}

// lines reads a text as the format has it: in one piece or line by line.
func lines(raw json.RawMessage) (string, error) {
	var one string
	if json.Unmarshal(raw, &one) == nil && len(raw) > 0 {
		return one, nil
	}
	var many []string
	if len(raw) == 0 || json.Unmarshal(raw, &many) != nil {
		return "", errors.New("neither a text nor a list of texts")
	}
	return strings.Join(many, ""), nil
}

// Kernel is the kernel that the notebook was written for, and its language; "" where it does not say.
func (n *Notebook) Kernel() (name, language string) {
	var meta struct {
		Kernel struct {
			Name     string `json:"name"`
			Language string `json:"language"`
		} `json:"kernelspec"`
		Language struct {
			Name string `json:"name"`
		} `json:"language_info"`
	}
	if json.Unmarshal(n.root["metadata"], &meta) != nil {
		return "", "" // of another form: it does not say
	}
	language = cmp.Or(meta.Kernel.Language, meta.Language.Name)
	return meta.Kernel.Name, strings.ToLower(language)
}

// Python reports whether the cells are in Python, as those of a notebook are that says nothing of it.
func (n *Notebook) Python() bool {
	name, language := n.Kernel()
	if language == "" {
		return name == "" || strings.HasPrefix(name, "python")
	}
	return language == "python" || language == "ipython"
}

// Encode writes the notebook as Jupyter does: fields in order, a space for each level.
func (n *Notebook) Encode() ([]byte, error) {
	cells := make([]object, 0, len(n.cells))
	for _, c := range n.cells {
		cells = append(cells, c.object)
	}
	var err error
	if n.root["cells"], err = encode(cells); err != nil {
		return nil, err
	}
	compact, err := encode(n.root)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, compact, "", " "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// encode is JSON without the escapes that only a page of the web needs.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the notebook: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

func (c cell) has(tag string) bool { return slices.Contains(c.tags, tag) }

// fill sets what a run of the cell has left; a count of 0 means that it did not run.
func (c cell) fill(count int, outputs []any) (err error) {
	if outputs == nil {
		outputs = []any{}
	}
	if c.object["outputs"], err = encode(outputs); err != nil {
		return err
	}
	var shown any
	if count > 0 {
		shown = count
	}
	c.object["execution_count"], err = encode(shown)
	return err
}

// Session runs cells: a *sandbox.Interpreter.
type Session interface {
	Run(ctx context.Context, c sandbox.Cell) (sandbox.CellResult, error)
}

// Options are how a notebook runs.
type Options struct {
	// Timeout interrupts a cell, which has failed then; 0 never does.
	Timeout time.Duration
	// AllowErrors goes on after a cell that failed.
	AllowErrors bool
	// Progress, if non-nil, receives the number of each cell, from 1, before it runs.
	Progress func(cell, of int)
}

// Report is what became of a notebook's cells.
type Report struct {
	Code int `json:"code_cells"`
	Ran  int `json:"ran"` // also those that failed
	// Failed are the places of cells that failed, among all cells from 1 on.
	Failed []int `json:"failed"`
	// Error is the name of what the first of them failed with, and Message what it says.
	Error   string `json:"error,omitempty"`
	Message string `json:"message,omitempty"`
	// Stopped reports that cells were left that did not run.
	Stopped  bool `json:"stopped"`
	TimedOut bool `json:"timed_out"`
	// Ended reports that the session's interpreter is gone.
	Ended bool `json:"ended"`
}

// Tags of cells that Jupyter's own tools heed.
const (
	tagSkip   = "skip-execution"
	tagRaises = "raises-exception" // it is to fail, and does not stop the others
)

// Run runs the cells one after the other and fills in what they print and show. It stops after one that failed. The
// outputs are those of this run alone: a cell that did not run has none. After an error, too, the notebook has what
// there was until then.
func (n *Notebook) Run(ctx context.Context, s Session, o Options) (r Report, err error) {
	r.Failed = []int{}
	for _, c := range n.cells {
		if !c.code {
			continue
		}
		r.Code++
		if err := c.fill(0, nil); err != nil {
			return r, err
		}
	}
	over := false
	for i, c := range n.cells {
		if !c.code || c.has(tagSkip) || strings.TrimSpace(c.source) == "" {
			continue
		}
		if over {
			r.Stopped = true
			break
		}
		if o.Progress != nil {
			o.Progress(i+1, len(n.cells))
		}
		r.Ran++
		res, err := n.cell(ctx, s, c, r.Ran, o.Timeout)
		if err != nil {
			r.Stopped = true
			return r, err
		}
		r.Ended = res.Ended
		if res.OK || c.has(tagRaises) && !res.Ended {
			continue
		}
		r.note(i+1, res)
		over = res.Ended || !o.AllowErrors
	}
	return r, nil
}

// note keeps what a cell failed with.
func (r *Report) note(place int, res sandbox.CellResult) {
	r.Failed = append(r.Failed, place)
	r.TimedOut = r.TimedOut || res.TimedOut
	if len(r.Failed) == 1 {
		r.Error, r.Message = reason(res)
	}
}

func (n *Notebook) cell(ctx context.Context, s Session, c cell, count int, timeout time.Duration) (sandbox.CellResult, error) {
	out := newOutputs(count)
	res, err := s.Run(ctx, sandbox.Cell{
		Code: c.source, Timeout: timeout, Display: out.show, Stdout: writer{out, "stdout"}, Stderr: writer{out, "stderr"},
	})
	if err != nil {
		res = sandbox.CellResult{Error: "Interrupted", Message: "the cell's end is not known"}
	}
	if ferr := c.fill(count, out.end(res)); err == nil {
		err = ferr
	}
	return res, err
}
