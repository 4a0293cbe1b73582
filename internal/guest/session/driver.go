package session

import (
	"cmp"
	"embed"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/wire"
)

//go:embed drivers
var drivers embed.FS

// driver describes how an interpreter is started: a command that runs the program from descriptor 3, and its files.
type driver struct {
	program string
	args    []string
	files   []string
}

const (
	pythonFirst = `import os;f=os.fdopen(3,'rb');exec(compile(f.read(int(f.readline())),'<driver>','exec'),{'f':f,'__name__':'<driver>'})`
	// In a function: a declaration outside would conflict with those of cells.
	nodeFirst = `(0,eval)((()=>{const s=require("fs"),b=Buffer.alloc(1);let n="";while(s.readSync(3,b,0,1)&&b[0]!=10)n+=b;const ` +
		`d=Buffer.alloc(+n);for(let i=0;i<d.length;)i+=s.readSync(3,d,i,d.length-i);return d.toString()})())`
	bashFirst = `read -r -u 3 n;LC_ALL=C IFS= read -r -d "" -N "$n" -u 3 d;eval "$d";eval "$__sa_loop"`
)

var all = map[string]driver{
	wire.DriverPython:  {"python3", []string{"-c", pythonFirst}, []string{"common.py", "python.py"}},
	wire.DriverNode:    {"node", []string{"--expose-internals", "-e", nodeFirst}, []string{"cells.js", "node.js"}},
	wire.DriverBash:    {"bash", []string{"--norc", "--noprofile", "-c", bashFirst}, []string{"bash.sh"}},
	wire.DriverIPython: {"python3", []string{"-c", pythonFirst}, []string{"common.py", "ipython.py"}},
	wire.DriverJupyter: {"python3", []string{"-c", pythonFirst}, []string{"common.py", "jupyter.py"}},
}

// start returns the command of a session, and the first bytes for descriptor 3.
func (d driver) start(s wire.SessionSpec) (argv []string, first []byte, err error) {
	var text []byte
	for _, name := range d.files {
		part, err := drivers.ReadFile("drivers/" + name)
		if err != nil {
			return nil, nil, err
		}
		text = append(text, part...)
	}
	if s.Driver == wire.DriverJupyter {
		kernel := cmp.Or(s.Kernel, "python3")
		// with characters that mean the same in both languages: SessionSpec.Check
		text = append(fmt.Appendf(nil, "KERNEL = %q\n", kernel), text...)
	}
	argv = s.Argv
	if len(argv) == 0 {
		argv = []string{d.program}
	}
	return append(append([]string{}, argv...), d.args...), append(fmt.Appendf(nil, "%d\n", len(text)), text...), nil
}
