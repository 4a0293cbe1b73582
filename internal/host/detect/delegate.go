package detect

import (
	"cmp"
	"path"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

var (
	testWord = lazyregexp.New(`(?i)(?:^|[\s/:_.-])(?:tests?|ci)(?:$|[\s/:_.-])`)
	// argument is one that says nothing about what a command does.
	argument = lazyregexp.New(`\s(?:-\S+|\S+=\S*)`)
	// handles is a command that does something with files or images, whatever they are called.
	handles = lazyregexp.New(`^(?:chmod|cp|curl|mkdir|mv|rm|sed|tar|unzip|wget|docker (?:build|buildx|cp|load|pull|push|save|tag))\s`)
	testJob = lazyregexp.New(`(?i)test|^ci$|build`)
)

// delegate finds the job, and its command, that tests a part by a program that the sandbox does not use, or by a script.
func (p *plan) delegate(t *part) (*job, int) {
	jobs := slices.Clone(p.jobs)
	slices.SortStableFunc(jobs, func(a, b *job) int { return cmp.Compare(len(a.services), len(b.services)) })
	for _, eco := range []*ecosystem{nil, t.eco} { // a command that is called a test is one sooner than any other of the program
		for _, j := range jobs {
			if j.aside || !testJob.MatchString(j.name+" "+path.Base(j.at.File)) {
				continue
			}
			for i := range j.commands {
				c := &j.commands[i]
				if c.delegates(eco) && c.dir == t.d.dir {
					return j, i
				}
			}
		}
	}
	return nil, 0
}

// others reports whether a job tests a part by another program of its ecosystem, or by a Makefile.
func (p *plan) others(t *part) bool {
	return slices.ContainsFunc(p.jobs, func(j *job) bool {
		return slices.ContainsFunc(j.commands, func(c step) bool { return c.eco != nil && c.dir == t.d.dir && c.delegates(t.eco) })
	})
}

// delegates reports whether a command may test an ecosystem by a program that the sandbox does not use, or by a script.
func (c *step) delegates(eco *ecosystem) bool {
	tests := testWord.MatchString(argument.ReplaceAllString(c.text, "")) && !handles.MatchString(c.text)
	return c.kind == kindUnknown && tests || c.kind == kindOther && (tests || eco != nil && c.eco == eco)
}

// gated reports whether a job judges, by checks or by what only may be one.
func gated(jobs []*job) bool {
	return slices.ContainsFunc(jobs, func(j *job) bool {
		return !j.aside && slices.ContainsFunc(j.commands, func(c step) bool { return c.kind.judges() || c.delegates(c.eco) })
	})
}
