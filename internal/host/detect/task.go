package detect

import (
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// taskName matches a name that is one of several words, or begins with one.
func taskName(words string) *lazyregexp.Pattern {
	return lazyregexp.New("^" + among(words) + "(?:[:_-]|$)")
}

// taskKinds are the names of tasks: scripts of package.json and composer.json, tasks of Deno, targets of a Makefile.
var taskKinds = []struct {
	name   *lazyregexp.Pattern
	kind   kind
	narrow bool
	why    string
}{
	{lazyregexp.New(`[:_-](?:fix|write|update)$|^fix`), kindRefused, false, reasonRewrites},
	{lazyregexp.New(`[:_-](?:watch|dev)$|^watch`), kindRefused, false, reasonWatches},
	{lazyregexp.New(`[:_-](?:setup|install)$`), kindUnknown, false, reasonUnknown},
	{lazyregexp.New(`[:_-]serve$`), kindRefused, false, reasonServes},
	{lazyregexp.New(`[:_-](?:debug|ui|open)$`), kindRefused, false, reasonAsks},
	{lazyregexp.New(`^tests?(?:[:_-](?:ci|all|run|cov|coverage|once|node|js))?$`), kindTest, false, ""},
	{taskName(`tests?[:_-](?:types?|typescript|tsd|dts) types?[:_-](?:check|test) check[:_-]types? type-?check types tsc phpstan psalm mypy
		analy[sz]e stan`), kindTypecheck, false, ""},
	{taskName(`tests?[:_-](?:lint|style) lint eslint cs phpcs style stylelint rubocop check[:_-](?:lint|style)`), kindLint, false, ""},
	{lazyregexp.New(`^(?:(?:format|fmt|prettier|pint)[:_-](?:check|ci|test)|check[:_-](?:format|fmt))`), kindFormat, false, ""},
	{taskName(`tests? units? e2e integration spec`), kindTest, true, ""},
	{lazyregexp.New(`^build(?:[:_-](?:all|prod|production|ci|types|dts|lib|package))?$`), kindBuild, false, ""},
	{lazyregexp.New(`^(?:check|verify|validate|ci)$`), kindCheck, false, ""},
	{taskName(`generate gen codegen prepare prepack pre-?build stub compile db migrate migration seed setup prisma bootstrap deps proto init
		vendor`), kindPrepare, false, ""},
}

// task judges a named task by its name and its content.
func (d *detector) task(eco *ecosystem, text, name, content string, depth int) verdict {
	v := verdict{eco: eco, command: text, tool: shortName(name), task: true, why: reasonUnknown}
	for _, k := range taskKinds {
		if k.name.MatchString(name) {
			v.kind, v.narrow, v.why = k.kind, k.narrow, k.why
			break
		}
	}
	if v.kind == kindRefused {
		return verdict{eco: eco, kind: kindRefused, why: v.why}
	}
	v.tests = strings.Contains(content, "test")
	if _, args, ok := strings.Cut(text, " -- "); ok && eco == &node {
		v.narrow = v.narrow || nodePart.MatchString(" "+args)
	}
	if args := handed(text, name); v.kind.judges() && (writesExpected(args) || handsUpdate.MatchString(args)) {
		return verdict{eco: eco, kind: kindRefused, why: reasonRewrites}
	}
	if eco == &makefiles {
		content = makeMarks.ReplaceAllString(makeIgnores.ReplaceAllString(content, "$1 || true"), "")
	}
	for _, c := range script(content, d.dir, Position{}) {
		if v.kind != kindUnknown && !c.complex {
			d.inner(&v, c.text, depth)
		}
	}
	if v.kind == kindUnknown && eco == &node {
		d.byContent(&v, content, handed(text, name), depth)
	}
	switch {
	case content != "" && TestsNothing(content) && v.kind.judges():
		v.refuse(reasonPlaceholder)
	case publishes.MatchString(name):
		v.refuse(reasonPublishes)
	}
	return v
}

// handsUpdate is the short form of the flag with which most runners of tests write what they expect.
var handsUpdate = lazyregexp.New(`\s-u(?:\s|$)`)

// makeMarks stand before the commands of a Makefile.
var makeMarks = lazyregexp.New(`(?m)^[@+-]+[ \t]*`)

// makeIgnores is a line of a Makefile whose failure does not count.
var makeIgnores = lazyregexp.New(`(?m)^[@+]*-[@+-]*[ \t]*(.*[^\\\n])$`)

func (v *verdict) refuse(why string) { *v = verdict{eco: v.eco, kind: kindRefused, why: why} }

// byContent judges a script whose name says nothing by its one command.
func (d *detector) byContent(v *verdict, content, args string, depth int) {
	commands := script(content, d.dir, Position{})
	if len(commands) != 1 || commands[0].complex || commands[0].dir != d.dir || depth == maxTaskDepth {
		return
	}
	if inner := d.classify(commands[0].text+args, depth+1); inner.eco == v.eco && inner.kind.judges() {
		v.kind, v.narrow, v.why = inner.kind, inner.narrow, ""
	}
}

// inner adds what a command of a task says of it.
func (d *detector) inner(v *verdict, text string, depth int) {
	if depth == maxTaskDepth {
		return
	}
	inner := d.classify(text, depth+1)
	program := missing.FindStringSubmatch(text)
	made := v.eco == &makefiles && v.kind.judges()
	lacks := v.eco == &node && v.kind.judges() && program != nil && strings.HasPrefix(text, program[1]) && !d.manifest().brings(program[1])
	switch {
	case inner.kind == kindRefused && inner.why != reasonRewrites && inner.why != reasonPlaceholder:
		v.refuse(inner.why)
	case (made || lacks) && program != nil:
		*v = verdict{eco: v.eco, kind: kindOther, why: program[1] + " is not in the sandbox"}
	case made && inner.eco != nil && (inner.kind == v.kind || v.kind == kindCheck && inner.kind == kindTest):
		v.eco, v.kind, v.narrow = inner.eco, inner.kind, v.narrow || inner.narrow
	}
}
