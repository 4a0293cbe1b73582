package detect

import (
	"cmp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
)

var (
	// rewriteWords are parts of the names of variables and flags that make tests write what they expect.
	rewriteWords = strings.Fields("update bless overwrite regen regenerate record accept")
	// negations are parts of names that turn something off.
	negations = strings.Fields("no not never disable skip without")
	// falsy are values with which nothing is rewritten, or that are known only where the command runs.
	falsy    = lazyregexp.New(`(?i)^(?:0|f|n|false|no|none|off|never|disabled?|)$|^\$`)
	nameWord = lazyregexp.New(`[^-_.]+`)
	// setInline is a variable that a script sets for its commands.
	setInline = lazyregexp.New(`(?:^|[\s;&|(@"'])(?:export\s+([A-Za-z_]\w*)=["']?([^\s"';&|)]*)|` +
		`([A-Za-z_]\w*)=["']?([^\s"';&|)]*)["']?[ \t]+[^\s;&|)])`)
)

// rewriting reports whether a variable or a flag makes tests write what they expect, so that they pass whatever the code does.
func rewriting(name, value string) bool {
	words := nameWord.FindAllString(strings.ToLower(name), -1)
	one := func(of []string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(of, w) })
	}
	return strings.EqualFold(value, "overwrite") || one(rewriteWords) && !one(negations) && !falsy.MatchString(value)
}

var (
	tester   = lazyregexp.New(testers)
	flagForm = lazyregexp.New(`\s(?:--?([A-Za-z][\w.-]*)(?:=(\S*))?|([A-Za-z_]\w*)=(\S*))`)
)

// writesExpected reports whether arguments make tests write what they expect.
func writesExpected(args string) bool {
	return slices.ContainsFunc(flagForm.FindAllStringSubmatch(args, maxList), func(m []string) bool {
		return rewriting(m[1]+m[3], cmp.Or(m[2]+m[4], "1"))
	})
}

// rewritten reports whether one of several variables makes tests write what they expect.
func rewritten(env []Var) bool {
	return slices.ContainsFunc(env, func(v Var) bool { return rewriting(v.Name, v.Value) })
}

// setsRewriting reports whether a script sets such a variable for its commands.
func setsRewriting(content string) bool {
	return slices.ContainsFunc(setInline.FindAllStringSubmatch(content, maxList), func(m []string) bool {
		return rewriting(m[1]+m[3], m[2]+m[4])
	})
}

// forTests are the variables of a workflow, a job or a step without those that make tests write what they expect, and without secrets.
func (d githubActions) forTests(file string, n *yaml.Node, row *scope, others *[]Var) []Var {
	return slices.DeleteFunc(d.env(file, n, row, others), func(v Var) bool {
		why := ""
		switch {
		case rewriting(v.Name, v.Value):
			why = reasonExpected
		case yamlkeys.LooksSecret(v.Value):
			why = reasonLooksSecret
		default:
			return false
		}
		*others = append(*others, Var{v.Name, why, v.At})
		return true
	})
}
