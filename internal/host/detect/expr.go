package detect

import (
	"fmt"
	"strings"

	"github.com/rhysd/actionlint"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// unknown is a value that only a run of the pipeline has, and secret one that only its owner has.
type unknown struct{ secret bool }

// scope are the values that expressions of a workflow refer to.
type scope struct {
	matrix map[string]any
	extra  bool // the row is an addition to the matrix
	env    map[string]string
	inputs map[string]any
	// services are those of the job, with the ports that lead to theirs.
	services map[string]any
}

var expression = lazyregexp.New(`(?s)\$\{\{(.*?)\}\}`)

// fill replaces the expressions of a text. known is false if a value is unknown, secret if it is a secret.
func (s *scope) fill(text string) (filled string, known, secret bool) {
	known = true
	filled = expression.ReplaceAllStringFunc(text, func(m string) string {
		v := s.eval(expression.FindStringSubmatch(m)[1])
		if u, ok := v.(unknown); ok {
			known, secret = false, secret || u.secret
			return ""
		}
		return textOf(v)
	})
	return strings.TrimSpace(filled), known, secret
}

var (
	shellVariable = lazyregexp.New(`\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})`)
	plainWord     = lazyregexp.New(`^[\w./:@%+,=-]+$`)
)

// inShell replaces the variables of a line of a script that the workflow sets to plain words.
func (s *scope) inShell(script, line string) string {
	return shellVariable.ReplaceAllStringFunc(line, func(m string) string {
		name := strings.Trim(m, "${}")
		if v := s.env[name]; plainWord.MatchString(v) && !strings.Contains(script, name+"=") && !strings.Contains(line, "'") {
			return v
		}
		return m
	})
}

// holds reports whether a condition is true for a pull request or the default branch; conditions with unknown values are.
func (s *scope) holds(condition string) bool {
	condition = strings.TrimSpace(condition)
	if condition == "" {
		return true
	}
	if m := expression.FindStringSubmatch(condition); m != nil && m[0] == condition {
		condition = m[1]
	} else if strings.Contains(condition, "${{") {
		return true
	}
	v := s.eval(condition)
	_, open := v.(unknown)
	return open || truth(v)
}

func (s *scope) eval(source string) any {
	n, err := actionlint.NewExprParser().Parse(actionlint.NewExprLexer(source + "}}"))
	if err != nil {
		return unknown{}
	}
	return s.value(n)
}

func (s *scope) value(n actionlint.ExprNode) any {
	switch n := n.(type) {
	case *actionlint.NullNode:
		return nil
	case *actionlint.BoolNode:
		return n.Value
	case *actionlint.IntNode:
		return n.Value
	case *actionlint.FloatNode:
		return n.Value
	case *actionlint.StringNode:
		return n.Value
	case *actionlint.VariableNode:
		return s.variable(n.Name)
	case *actionlint.ObjectDerefNode:
		return member(s.value(n.Receiver), n.Property)
	case *actionlint.IndexAccessNode:
		return member(s.value(n.Operand), textOf(s.value(n.Index)))
	case *actionlint.NotOpNode:
		if v := s.value(n.Operand); !isUnknown(v) {
			return !truth(v)
		}
	case *actionlint.CompareOpNode:
		return compare(n.Kind, s.value(n.Left), s.value(n.Right))
	case *actionlint.LogicalOpNode:
		left := s.value(n.Left)
		and := n.Kind == actionlint.LogicalOpNodeKindAnd
		if isUnknown(left) {
			if right := s.value(n.Right); and && !isUnknown(right) && !truth(right) {
				return right
			}
			return left
		}
		if truth(left) != and {
			return left
		}
		return s.value(n.Right)
	case *actionlint.FuncCallNode:
		return s.call(strings.ToLower(n.Callee), n.Args)
	}
	return unknown{}
}

func isUnknown(v any) bool { _, ok := v.(unknown); return ok }

// variable returns a context, as a pull request into the default branch on Linux has it.
func (s *scope) variable(name string) any {
	switch strings.ToLower(name) {
	case "matrix":
		if s.matrix == nil {
			return unknown{}
		}
		return s.matrix
	case "env":
		env := map[string]any{}
		for k, v := range s.env {
			env[k] = v
		}
		return env
	case "inputs":
		return s.inputs
	case "runner":
		return map[string]any{"os": "Linux", "arch": "X64", "temp": "/tmp"}
	case "github":
		return map[string]any{
			"event_name": "pull_request", "ref": "refs/pull/1/merge", "ref_type": "branch", "workspace": workorder.Workspace, "": unknown{},
		}
	case "job":
		return map[string]any{"services": s.services, "": unknown{}}
	case "secrets":
		return unknown{secret: true}
	}
	return unknown{}
}

// member returns a property of a value. An object with the property "" has it for all other names.
func member(v any, name string) any {
	switch v := v.(type) {
	case unknown:
		return v
	case map[string]any:
		for k, each := range v {
			if strings.EqualFold(k, name) && k != "" {
				return each
			}
		}
		return v[""]
	case nil:
		return nil
	}
	return unknown{}
}

func compare(kind actionlint.CompareOpNodeKind, a, b any) any {
	if isUnknown(a) || isUnknown(b) {
		return unknown{}
	}
	same := strings.EqualFold(textOf(a), textOf(b))
	switch kind {
	case actionlint.CompareOpNodeKindEq:
		return same
	case actionlint.CompareOpNodeKindNotEq:
		return !same
	}
	return unknown{}
}

func (s *scope) call(name string, args []actionlint.ExprNode) any {
	switch name {
	case "success", "always":
		return true
	case "failure", "cancelled":
		return false
	}
	values := make([]string, len(args))
	for i, a := range args {
		v := s.value(a)
		if isUnknown(v) {
			return v
		}
		values[i] = strings.ToLower(textOf(v))
	}
	two := len(values) == 2
	switch {
	case name == "contains" && two:
		return strings.Contains(values[0], values[1])
	case name == "startswith" && two:
		return strings.HasPrefix(values[0], values[1])
	case name == "endswith" && two:
		return strings.HasSuffix(values[0], values[1])
	case name == "format" && len(args) > 0:
		text := textOf(s.value(args[0]))
		for i := range args[1:] {
			text = strings.ReplaceAll(text, fmt.Sprintf("{%d}", i), textOf(s.value(args[i+1])))
		}
		return text
	}
	return unknown{}
}

func truth(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case int:
		return v != 0
	}
	return true
}

func textOf(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}
