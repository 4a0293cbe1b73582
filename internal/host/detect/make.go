package detect

import "regexp"

var target = regexp.MustCompile(`(?m)^([A-Za-z0-9_-]+)\s*:(?:[^=]|$)`)

// goals are the targets of the Makefile, and where they stand.
func (d *detector) goals() map[string]Position {
	if d.targets == nil {
		d.targets = d.readGoals()
	}
	return d.targets
}

func (d *detector) readGoals() map[string]Position {
	goals := map[string]Position{}
	f := d.first("GNUmakefile", "makefile", "Makefile")
	if f == nil {
		return goals
	}
	for _, m := range target.FindAllStringSubmatchIndex(f.text, -1) {
		if name := f.text[m[2]:m[3]]; goals[name] == (Position{}) {
			goals[name] = f.at(m[0])
		}
	}
	return goals
}

// makefile takes the targets that judge.
func (d *detector) makefile() {
	goals := d.goals()
	for _, name := range []string{"test", "lint", "check"} {
		if at, ok := goals[name]; ok {
			d.check(at, name, "make "+name)
		}
	}
}
