package artifact

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Definition describes an artifact to build.
type Definition struct {
	Metadata
	// Packages are the distribution's. A jail without any has this machine's programs.
	Packages []string
	Image    string // that of a container; "" means the small one, which is also what Packages are added to
}

var imageName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._:/@-]*$`)

// Defaults of a definition.
const (
	defaultInterpreter  = "bash -s"
	defaultProjectMount = "/project"
	defaultMemoryMB     = code.DefaultMemoryBytes >> 20
)

var keys = func() *yamlkeys.Schema {
	text, number := &yamlkeys.Schema{Kind: yamlkeys.Text}, &yamlkeys.Schema{Kind: yamlkeys.Number, Max: maxNumber}
	list := &yamlkeys.Schema{Kind: yamlkeys.List, Item: text}
	return &yamlkeys.Schema{Kind: yamlkeys.Object, Keys: []yamlkeys.Key{
		{Name: "name", Schema: text},
		{Name: "packages", Schema: list},
		{Name: "interpreter", Schema: text},
		{Name: "stdin_mode", Schema: text},
		{Name: "backend", Schema: text},
		{Name: "image", Schema: text},
		{Name: "timeout_seconds", Schema: number},
		{Name: "memory_mb", Schema: &yamlkeys.Schema{Kind: yamlkeys.Integer, Max: maxNumber}},
		{Name: "description", Schema: text},
		{Name: "project_mount", Schema: text},
		{Name: "inherit_vars", Schema: list},
		// Keys of other builders, which have no effect here.
		{Name: "backend_options", Schema: &yamlkeys.Schema{Kind: yamlkeys.Object}},
	}}
}()

// ReadDefinition reads a definition, a YAML or JSON file. The error lists all mistakes.
func ReadDefinition(file string) (Definition, error) {
	b, err := yamlkeys.ReadFile(file)
	if err != nil {
		return Definition{}, fmt.Errorf("read the definition: %w", err)
	}
	v, err := yamlkeys.Load(file, b, keys)
	if v == nil { // not a mapping
		return Definition{}, fmt.Errorf("read the definition: %w", err)
	}
	text := func(key string) string { return v.Get(key).Str() }
	d := Definition{
		Metadata: Metadata{
			Name: text("name"), Backend: cmp.Or(text("backend"), string(sandbox.RuntimeJail)),
			Interpreter: cmp.Or(text("interpreter"), defaultInterpreter),
			StdinMode:   text("stdin_mode"), TimeoutSeconds: cmp.Or(v.Get("timeout_seconds").Number(), code.DefaultTimeout.Seconds()),
			MemoryMB: cmp.Or(int64(v.Get("memory_mb").Number()), defaultMemoryMB), Description: text("description"),
			Own: &Own{ProjectMount: cmp.Or(text("project_mount"), defaultProjectMount), Inherit: v.Get("inherit_vars").Strs()},
		},
		Packages: v.Get("packages").Strs(), Image: text("image"),
	}
	// A value of the wrong type must not hide other mistakes.
	if err = errors.Join(err, d.check()); err != nil {
		return d, fmt.Errorf("read the definition: %w", err)
	}
	return d, nil
}

// check returns all mistakes of a definition, and sets how code reaches the interpreter.
func (d *Definition) check() error {
	words, _ := Words(d.Interpreter) // its error is reported with the others
	d.Own.Image = d.Image
	d.StdinMode = cmp.Or(d.StdinMode, map[bool]string{true: modeArgument, false: modePipe}[code.TakesCodeArgument(words)])
	errs := []error{d.Metadata.check()}
	for _, p := range d.Packages {
		if !projects.ValidPackage(p) {
			errs = append(errs, fmt.Errorf("package %q: use a package of the distribution, as jq or jq=1.6-2", p))
		}
	}
	for _, v := range d.Own.Inherit {
		if !workorder.ValidEnvName(v) || strings.HasPrefix(v, "sa_") { // the script's own variables
			errs = append(errs, fmt.Errorf("inherit_vars: %q is no variable that can be inherited", v))
		}
	}
	if d.Image != "" && !imageName.MatchString(d.Image) {
		errs = append(errs, fmt.Errorf("image %q: use the name of an image", d.Image))
	}
	if d.Image != "" && len(d.Packages) > 0 {
		errs = append(errs, errors.New("image and packages: packages are added to the small image; add them to yours where that is built"))
	}
	if m := path.Clean(d.Own.ProjectMount); slices.Contains(strings.Split("/ /usr /etc /proc /dev /tmp /workspace /bin /sbin /lib /lib64",
		" "), m) {
		errs = append(errs, fmt.Errorf("project_mount %s: use a directory that the jail does not have", m))
	}
	if _, err := d.preset(""); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	slices.Sort(d.Packages)
	d.Packages = slices.Compact(d.Packages)
	d.Own.ProjectMount = filepath.Clean(d.Own.ProjectMount)
	return nil
}
