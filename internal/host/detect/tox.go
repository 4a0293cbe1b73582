package detect

import (
	"regexp"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// tox returns what the tests need by the environment of tox.ini that all others start from, as arguments of pip. Lines with conditions
// count where they hold for the environment that a pipeline runs.
func (p *pythonFiles) tox() (at Position, needs []string) {
	at, lines := p.toxLines("testenv", "deps", 0)
	for _, line := range lines {
		if m := toxFactors.FindStringSubmatch(line); m != nil {
			if several := pythonFactor.FindAllString(m[1], 2); len(several) > 1 || factor(m[1], p.toxEnv) {
				line = m[2]
			}
		}
		if l := listed.FindStringSubmatch(line); l != nil {
			if !slices.Contains(requirementFiles, l[1]) && p.has(l[1]) {
				needs = append(needs, "-r", l[1])
			}
			continue
		}
		if requirement.MatchString(line) {
			needs = append(needs, strings.Join(strings.Fields(line), ""))
		}
	}
	return at, needs
}

var (
	// toxFactors are the environments of a line, such as py311-django42,django52.
	toxFactors = lazyregexp.New(`^([\w.!,{} -]+):[ \t]*([^\s/].*)$`)
	// toxCommand runs one environment of the tests.
	toxCommand = lazyregexp.New(`^(?:uv run (?:--\S+ )*)?(?:python3? -m )?tox (?:.* )?-e[ =]?"?((?:pypy|py[0-9]|[0-9])[\w.-]*)`)
)

// factor reports whether a condition of a line holds for an environment.
func factor(condition, environment string) bool {
	factors := strings.Split(environment, "-")
	return environment != "" && slices.ContainsFunc(strings.Split(condition, ","), func(all string) bool {
		return !slices.ContainsFunc(strings.Split(all, "-"), func(f string) bool {
			name, not := strings.CutPrefix(f, "!")
			return slices.Contains(factors, name) == not
		})
	})
}

// toxWords are the words of a key of [testenv].
func (p *pythonFiles) toxWords(key string) (words []string) {
	_, lines := p.toxLines("testenv", key, 0)
	for _, l := range lines {
		words = append(words, strings.FieldsFunc(l, func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	return slices.DeleteFunc(words, func(w string) bool { return !requirement.MatchString(w) })
}

// pythonFactor is an environment of a version of Python. A line for several of them is for any.
var pythonFactor = lazyregexp.New(`(?:^|[,{])\s*(?:py)?3\.?[0-9]+\s*(?:$|[,}])`)

var toxEnvironment = lazyregexp.New(`(?m)^\[testenv\]`)

// toxFile is the file with tox's environments: setup.cfg and pyproject.toml may have those of tox.ini.
func (p *pythonFiles) toxFile() *file {
	if f := p.open("tox.ini"); f != nil {
		return f
	}
	for _, name := range []string{"setup.cfg", "pyproject.toml"} {
		if f := p.open(name); f != nil && toxEnvironment.MatchString(f.text) {
			return f
		}
	}
	return nil
}

// toxLines are the lines of a key of tox's file, references to other sections replaced.
func (p *pythonFiles) toxLines(section, key string, depth int) (at Position, lines []string) {
	f := p.toxFile()
	if f == nil || depth > maxTaskDepth {
		return at, nil
	}
	from, to := -1, len(f.text)
	for _, m := range toxSection.FindAllStringSubmatchIndex(f.text, maxLines) {
		if from >= 0 {
			to = m[0]
			break
		}
		if f.text[m[2]:m[3]] == section {
			from = m[1]
		}
	}
	if from < 0 {
		return at, nil
	}
	value := lazyregexp.New(`(?m)^` + regexp.QuoteMeta(key) + `[ \t]*=[ \t]*(.*(?:\n(?:[ \t]+.*|[ \t]*#.*|[ \t]*$))*)`)
	m := value.FindStringSubmatchIndex(f.text[from:to])
	if m == nil {
		return at, nil
	}
	for line := range strings.Lines(f.text[from+m[2] : from+m[3]]) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.ReplaceAll(strings.TrimSpace(line), "{toxinidir}/", ""); line == "" {
			continue
		}
		if refer := toxRefer.FindStringSubmatch(line); refer != nil {
			_, inner := p.toxLines(refer[1], refer[2], depth+1)
			lines = append(lines, inner...)
			continue
		}
		lines = append(lines, line)
	}
	return f.line(from + m[0]), lines
}
