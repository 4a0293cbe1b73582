package artifact

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/host/keyed"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Definition is what an artifact is built of.
type Definition struct {
	Metadata
	// Packages are the distribution's. A jail without any has this machine's programs.
	Packages []string
	// Image is that of a container; "" means the small one, which is also what Packages are added to.
	Image string
}

var imageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]*$`)

// Defaults of a definition.
const (
	defaultInterpreter  = "bash -s"
	defaultProjectMount = "/project"
	defaultMemoryMB     = code.DefaultMemoryBytes >> 20
)

// ReadDefinition reads a definition, a YAML or JSON file. The error is all that is wrong with it.
func ReadDefinition(file string) (Definition, error) {
	d := Definition{Metadata: Metadata{
		Backend: string(sandbox.KindJail), Interpreter: defaultInterpreter, TimeoutSeconds: code.DefaultTimeout.Seconds(), MemoryMB: defaultMemoryMB,
		Own: &Own{ProjectMount: defaultProjectMount},
	}}
	b, err := keyed.Open(file)
	read := false
	if err == nil {
		err = keyed.Read(file, b, func(r *keyed.Reader, n *yaml.Node) {
			read = true
			const least = 0.001
			r.Mapping(n, "", keyed.Keys{
				"name": r.String("name", &d.Name), "packages": r.Strings("packages", &d.Packages), "interpreter": r.String("interpreter", &d.Interpreter),
				"stdin_mode": r.String("stdin_mode", &d.StdinMode), "backend": r.String("backend", &d.Backend), "image": r.String("image", &d.Image),
				"timeout_seconds": keyed.Number(r, "timeout_seconds", least, &d.TimeoutSeconds), "memory_mb": keyed.Number(r, "memory_mb", 1, &d.MemoryMB),
				"description": r.String("description", &d.Description), "project_mount": r.String("project_mount", &d.Own.ProjectMount),
				"inherit_vars": r.Strings("inherit_vars", &d.Own.Inherit),
				// Of other builders; there is none here.
				"backend_options": func(n *yaml.Node) { r.Mapping(n, "backend_options.", nil) },
			})
		})
	}
	if read { // a value of a wrong type hides no other mistake
		err = errors.Join(err, d.check())
	}
	if err != nil {
		return d, fmt.Errorf("read the definition: %w", err)
	}
	return d, nil
}

// check returns all that is wrong with a definition, and fills in how code reaches the interpreter.
func (d *Definition) check() error {
	words, _ := Words(d.Interpreter) // what is wrong with them is told with the rest
	d.Own.Image = d.Image
	d.StdinMode = cmp.Or(d.StdinMode, map[bool]string{true: modeArgument, false: modePipe}[code.ArgumentOf(words)])
	errs := []error{d.Metadata.check()}
	for _, p := range d.Packages {
		if !projects.ValidPackage(p) {
			errs = append(errs, fmt.Errorf("package %q: use a package of the distribution, as jq or jq=1.6-2", p))
		}
	}
	for _, v := range d.Own.Inherit {
		if !workorder.ValidEnvName(v) || strings.HasPrefix(v, "sa_") { // those are of the script
			errs = append(errs, fmt.Errorf("inherit_vars: %q is no variable that can be inherited", v))
		}
	}
	if d.Image != "" && !imageName.MatchString(d.Image) {
		errs = append(errs, fmt.Errorf("image %q: use the name of an image", d.Image))
	}
	if d.Image != "" && len(d.Packages) > 0 {
		errs = append(errs, errors.New("image and packages: packages are added to the small image; add them to yours where that is built"))
	}
	if m := path.Clean(d.Own.ProjectMount); slices.Contains(strings.Split("/ /usr /etc /proc /dev /tmp /workspace /bin /sbin /lib /lib64", " "), m) {
		errs = append(errs, fmt.Errorf("project_mount %s: use a folder that the jail does not have", m))
	}
	if _, err := d.environment(""); err != nil {
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
