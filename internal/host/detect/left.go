package detect

import (
	"cmp"
	"slices"
	"strings"
)

const (
	reasonAside   = "its job does not judge the code"
	reasonSimilar = "another check of its kind is used"
	reasonUnused  = "no check that is used needs it"
)

// chains makes one command of a line: a pipeline ends at the command that fails, whether && or ; stands after it.
func (j *job) chains() {
	first := 0
	for i := 1; i <= len(j.commands); i++ {
		if i == len(j.commands) || j.commands[i].after == "" {
			j.chain(j.commands[first:i])
			first = i
		}
	}
}

// chain puts a line into the place of its last command, without what setup does. A command that cannot be used leaves the line out.
func (j *job) chain(line []step) {
	var texts, commands []string
	var own []*step
	for i := range line {
		c := &line[i]
		texts = append(texts, c.text)
		if c.kind != kindNothing && c.kind != kindInstall && (c.kind != kindPrepare || c.verdict.command != "") {
			own = append(own, c)
			commands = append(commands, c.verdict.command)
		}
	}
	unusable := func(c *step) bool { return !c.kind.judges() && c.kind != kindPrepare }
	bad, judge := slices.IndexFunc(own, unusable), slices.IndexFunc(own, func(c *step) bool { return c.kind.judges() })
	if len(own) < 2 || bad < 0 && judge < 0 {
		return
	}
	one := *own[max(bad, judge)]
	other := func(c *step) bool {
		return c.dir != one.dir || !slices.Equal(c.env, one.env) || c.kind.judges() && c.eco != one.eco || c.install != ""
	}
	switch {
	case bad >= 0:
		one = *own[bad]
		one.why = one.text + ": " + one.why
	case slices.ContainsFunc(own, other):
		one.verdict = verdict{why: reasonPlain}
	default:
		for _, c := range own {
			if c.kind.judges() && order(c.kind) < order(one.kind) {
				one = *c
			}
		}
		one.packages, one.verdict.command = nil, strings.Join(commands, " && ")
		for _, c := range own {
			one.packages = append(one.packages, c.packages...)
			one.parts = append(one.parts, c.kind)
		}
	}
	one.text, one.whole = strings.Join(texts, " && "), true
	for _, c := range own {
		c.verdict = verdict{kind: kindNothing}
	}
	*own[len(own)-1] = one
}

// order is the place of a kind among the kinds of checks.
func order(k kind) int { return slices.Index(strings.Fields(checkKinds), string(k)) }

// left says why commands of the jobs are not used, of equal ones once.
func (p *plan) left() {
	said := map[string]bool{}
	as := func(c step) string { return in(c.dir, cmp.Or(c.verdict.command, c.text)) }
	for _, j := range p.jobs {
		for _, c := range j.commands {
			if c.used {
				said[as(c)], said[in(c.dir, c.text)] = true, true
			}
		}
	}
	for _, j := range p.jobs {
		for _, c := range j.commands {
			why := c.why
			switch {
			case c.kind == kindInstall, c.used:
				continue
			case c.kind == kindNothing:
				if !composeUp.MatchString(c.text) && !dockerRun.MatchString(c.text) || slices.Contains(p.chosen, j) {
					continue
				}
				why = "the job that tests does not start it"
			case c.kind.judges() && j.aside:
				why = cmp.Or(why, reasonAside)
			case c.kind.judges():
				why = cmp.Or(why, reasonSimilar)
			case c.kind == kindPrepare:
				why = cmp.Or(why, reasonUnused)
			}
			if !said[as(c)] {
				text := in(c.dir, c.text)
				if c.whole {
					text = c.line
				}
				p.omit(c.at, text, "%s", why)
			}
			said[as(c)] = true
		}
	}
}
