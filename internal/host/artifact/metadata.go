// Package artifact reads, checks and builds artifacts: directories with a program bin/run, which runs the code on its
// standard input in isolation, and its metadata.json.
package artifact

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-shellwords"
	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
)

// Names in an artifact.
const (
	MetadataFile = "metadata.json"
	runFile      = "bin/run"
	rootLink     = "root"
	ownKey       = "sandbox_agent" // in metadata.json
)

// Files are the files that describe an artifact.
var Files = []string{MetadataFile, runFile}

// maxMetadata bounds metadata.json, in bytes.
const maxMetadata = 1 << 20

// maxNumber is the limit of megabytes and seconds; their bytes and nanoseconds do not overflow.
const maxNumber = 1_000_000_000

// Ways in which code reaches the interpreter.
const (
	modeArgument = "arg"
	modePipe     = "pipe"
)

// Metadata is the content of metadata.json.
type Metadata struct {
	Name        string `json:"name"`
	Backend     string `json:"backend"`
	Interpreter string `json:"interpreter,omitempty"`
	// StdinMode is arg or pipe; "" means that the interpreter's last argument decides.
	StdinMode      string  `json:"stdin_mode,omitempty"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
	MemoryMB       int64   `json:"memory_mb,omitempty"`
	Description    string  `json:"description,omitempty"`
	// InterpreterType is python, bash or node, in artifacts of other builders without a backend.
	InterpreterType string `json:"interpreter_type,omitempty"`
	Own             *Own   `json:"sandbox_agent,omitempty"` // only in artifacts that sandbox-agent built
}

// Own is what sandbox-agent needs to run an artifact that it built.
type Own struct {
	Image        string   `json:"image,omitempty"`
	ProjectMount string   `json:"project_mount"`
	Inherit      []string `json:"inherit_vars,omitempty"`
}

// Read reads an artifact as a preset. The error lists all mistakes.
func Read(dir string) (code.Preset, error) {
	dir, err := filepath.Abs(dir) // its program begins elsewhere
	if err != nil {
		return code.Preset{}, err
	}
	b, err := readMetadata(filepath.Join(dir, MetadataFile))
	if err != nil {
		return code.Preset{}, err
	}
	var m Metadata
	errs := []error{m.decode(b), m.check()}
	run := filepath.Join(dir, filepath.FromSlash(runFile))
	switch st, err := os.Stat(run); {
	case errors.Is(err, fs.ErrNotExist):
		errs = append(errs, fmt.Errorf("there is no %s", runFile))
	case err != nil:
		errs = append(errs, err)
	case !st.Mode().IsRegular() || st.Mode().Perm()&0o111 == 0:
		errs = append(errs, fmt.Errorf("%s is no program that can be run", runFile))
	}
	p, err := m.preset(dir)
	if err := errors.Join(append(errs, err)...); err != nil {
		return code.Preset{}, err
	}
	if m.Own == nil {
		p.Program, p.Driver = run, ""
		return p, nil
	}
	if p.Runtime == sandbox.RuntimeJail {
		switch root, err := filepath.EvalSymlinks(filepath.Join(dir, rootLink)); {
		case err == nil:
			p.Root = root
		case !errors.Is(err, fs.ErrNotExist):
			return code.Preset{}, fmt.Errorf("its root directory: %w", err)
		default:
			if _, err := os.Lstat(filepath.Join(dir, rootLink)); err == nil {
				return code.Preset{}, errors.New("its root directory is gone: build it again")
			}
		}
	}
	return p, nil
}

func readMetadata(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe must not block
	if err != nil {
		return nil, fmt.Errorf("read the artifact: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxMetadata+1))
	if err == nil && len(b) > maxMetadata {
		err = fmt.Errorf("%s has more than %d bytes", MetadataFile, maxMetadata)
	}
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(b)).Decode(&map[string]json.RawMessage{})
	}
	if err != nil {
		return nil, fmt.Errorf("read the artifact: %s: %w", MetadataFile, err)
	}
	return b, nil
}

// decode reads a document value by value, so that a value of the wrong type hides no other. It accepts unknown keys.
func (m *Metadata) decode(b []byte) error {
	var errs []error
	var read func(b []byte, within func(string) string)
	read = func(b []byte, within func(string) string) {
		var values map[string]json.RawMessage
		if json.NewDecoder(bytes.NewReader(b)).Decode(&values) != nil || len(values) == 0 {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			name, _ := json.Marshal(key) // cannot fail for a string
			one := func(value string) string { return within("{" + string(name) + ":" + value + "}") }
			if err := json.Unmarshal([]byte(one(string(values[key]))), m); err != nil {
				before := len(errs)
				read(values[key], one)
				if len(errs) == before {
					errs = append(errs, wrongType(err))
					m.standIn(key)
				}
			}
		}
	}
	read(b, func(s string) string { return s })
	return errors.Join(errs...)
}

// wrongType says which value has the wrong type.
func wrongType(err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return fmt.Errorf("%s: %w", MetadataFile, err)
	}
	needed := map[reflect.Kind]string{
		reflect.String: "a string", reflect.Int64: "a number", reflect.Float64: "a number",
		reflect.Slice: "a list", reflect.Struct: "an object",
	}[wrong.Type.Kind()]
	number, isNumber := strings.CutPrefix(wrong.Value, "number ")
	switch {
	case isNumber && wrong.Type.Kind() == reflect.Int64:
		return fmt.Errorf("%s: a whole number of at most 18 digits is needed, not %.80s", wrong.Field, number)
	case isNumber && wrong.Type.Kind() == reflect.Float64:
		return fmt.Errorf("%s: a smaller number is needed, not %.80s", wrong.Field, number)
	case isNumber:
		wrong.Value = "number"
	}
	got := map[string]string{
		"string": "a string", "number": "a number", "array": "a list", "object": "an object",
		"bool": "true or false",
	}[wrong.Value]
	return fmt.Errorf("%s: %s is needed, not %s", wrong.Field, needed, got)
}

// standIn replaces a value of the wrong type by one that check accepts.
func (m *Metadata) standIn(key string) {
	switch {
	case strings.EqualFold(key, "name"):
		m.Name = "x"
	case strings.EqualFold(key, "backend"):
		m.Backend = string(sandbox.RuntimeJail)
	case strings.EqualFold(key, "interpreter_type"):
		m.InterpreterType = "bash"
	}
}

// Unknown returns the keys of an artifact's metadata without effect here, which may be mistakes.
func Unknown(dir string) ([]string, error) {
	b, err := readMetadata(filepath.Join(dir, MetadataFile))
	if err != nil {
		return nil, err
	}
	var values map[string]json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&values); err != nil {
		return nil, err
	}
	unknown := unknownKeys(values, reflect.TypeFor[Metadata](), "")
	var own map[string]json.RawMessage
	if json.Unmarshal(values[ownKey], &own) == nil { // Read reports another type
		unknown = append(unknown, unknownKeys(own, reflect.TypeFor[Own](), ownKey+".")...)
	}
	return unknown, nil
}

// unknownKeys returns the keys without a field in a type.
func unknownKeys(values map[string]json.RawMessage, t reflect.Type, within string) (unknown []string) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if _, ok := t.FieldByNameFunc(func(name string) bool {
			f, _ := t.FieldByName(name)
			known, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return strings.EqualFold(known, key)
		}); !ok {
			unknown = append(unknown, within+key)
		}
	}
	return unknown
}

func (m Metadata) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if m.Name == "" {
		wrong("name is missing")
	}
	if m.Backend == "" && m.InterpreterType == "" {
		wrong("backend is missing: use jail, container or box")
	}
	if m.InterpreterType != "" && !slices.Contains([]string{"python", "bash", "node"}, m.InterpreterType) {
		wrong("interpreter_type %q: use python, bash or node", m.InterpreterType)
	}
	if !slices.Contains([]string{"", modeArgument, modePipe}, m.StdinMode) {
		wrong("stdin_mode %q: use %s or %s", m.StdinMode, modeArgument, modePipe)
	}
	if m.TimeoutSeconds < 0 || m.TimeoutSeconds > maxNumber {
		wrong("timeout_seconds %g: use 0 to %d", m.TimeoutSeconds, maxNumber)
	}
	if m.MemoryMB < 0 || m.MemoryMB > maxNumber {
		wrong("memory_mb %d: use 0 to %d", m.MemoryMB, maxNumber)
	}
	if m.Own != nil && m.Own.ProjectMount != "" && !path.IsAbs(m.Own.ProjectMount) {
		wrong("project_mount %q: use an absolute path", m.Own.ProjectMount)
	}
	return errors.Join(errs...)
}

// preset returns the preset of checked metadata. It repeats no error of check.
func (m Metadata) preset(source string) (code.Preset, error) {
	if m.Name == "" {
		m.standIn("name")
	}
	p := code.Preset{
		Name: m.Name, Source: source, Description: m.Description, Runtime: sandbox.Runtime(cmp.Or(m.Backend, string(sandbox.RuntimeJail))),
		Timeout: Seconds(min(max(m.TimeoutSeconds, 0), maxNumber)), MemoryBytes: min(max(m.MemoryMB, 0), maxNumber) << 20,
	}
	if m.Own != nil {
		p.Image, p.Inherit, p.ProjectMount = m.Own.Image, m.Own.Inherit, m.Own.ProjectMount
	}
	var err error
	if p.Interpreter, err = Words(cmp.Or(m.Interpreter, defaultInterpreter)); err != nil {
		return code.Preset{}, err
	}
	p.Driver, p.CodeArgument = code.InferDriver(p.Interpreter), code.TakesCodeArgument(p.Interpreter)
	if m.StdinMode != "" && m.Interpreter != "" {
		p.CodeArgument = m.StdinMode == modeArgument
	}
	return p, p.Check()
}

// Seconds converts seconds to a duration.
func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Words splits a command line.
func Words(line string) ([]string, error) {
	words, err := shellwords.Parse(line)
	if err != nil || len(words) == 0 {
		return nil, fmt.Errorf("interpreter %q: use a program with its arguments", line)
	}
	return words, nil
}
