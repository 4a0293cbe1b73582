package projects

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// OptionError is an invalid value from outside of the file: a flag or a variable.
type OptionError struct{ Name, Message, Hint string }

func (e *OptionError) Error() string { return fmt.Sprintf("%s: %s", e.Name, e.Message) }

// ExitCode is the exit code of the CLI for this error.
func (e *OptionError) ExitCode() int { return workorder.ExitUsage }

// Override replaces the value of a top-level key, with the same checks. source names the flag or variable for messages
// and for `project show --effective`. Lists and mappings without a short form cannot be replaced.
func (p *Project) Override(name, val, source string) error {
	if name == KeyAllow {
		return p.allow(val, source)
	}
	if name == KeyCommand {
		return p.command(val, source)
	}
	root := definition()
	k, ok := root.Find(name)
	if !ok {
		return fmt.Errorf("override project key %q: there is no such key", name)
	}
	d := yamlkeys.NewValues(source, root)
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: val}
	if name == "harness" && val == p.Harness.Name {
		return nil // the harness by name keeps the mapping's command and model
	}
	v := d.Decode(k.Schema, n, n, name)
	if problems := d.Found(); len(problems) > 0 {
		first := problems[0]
		if first.Code == yamlkeys.CodeMissing { // a single value cannot set it
			first.Hint = "add --command, or in the project file, " + first.Hint + "; `sandbox-agent project init` makes one"
		}
		return &OptionError{Name: source, Message: first.Message, Hint: first.Hint}
	}
	if name == "repo" {
		// A path on the command line counts from the current directory.
		v.Text = git.AbsRepoFrom(v.Text, p.options.Dir, p.options.Home)
	}
	if name == "network" {
		v = p.networkOf(v)
	}
	p.tree.Set(name, v)
	bind(p)
	return nil
}

// KeyAllow is the key of the rules of a restricted network. Override adds to them.
const KeyAllow = "network.allow"

// KeyCommand is the key of the command harness's program. Override also selects that harness.
const KeyCommand = "harness.command"

func (p *Project) command(val, source string) error {
	root := definition()
	k, _ := root.Find("harness") // always in the table
	d := yamlkeys.NewValues(source, root)
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, text := range []string{"name", workorder.HarnessCommand, "command", val} {
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: text})
	}
	v := d.Decode(k.Schema, n, n, "harness")
	if problems := d.Found(); len(problems) > 0 {
		return &OptionError{Name: source, Message: problems[0].Message, Hint: problems[0].Hint}
	}
	p.tree.Set("harness", v)
	bind(p)
	return nil
}

// networkOf returns the project's network in another mode, with its resolvers and the rules that the mode can have.
func (p *Project) networkOf(mode *value) *value {
	n, old := p.networkMapping(), p.tree.Get("network")
	n.Set("mode", mode)
	for _, f := range old.Entries() {
		if f.Name == "dns" || f.Name != "mode" && mode.Text == string(workorder.NetworkRestricted) {
			n.Set(f.Name, f.Value)
		}
	}
	return n
}

func (p *Project) networkMapping() *value {
	old := p.tree.Get("network")
	return &value{Schema: network(), Node: old.Node, Path: old.Path, Origin: old.Origin}
}

// allow adds rules, separated by commas, to the file's.
func (p *Project) allow(rules, source string) error {
	if p.Network.Mode != workorder.NetworkRestricted {
		return &OptionError{
			Name: source, Message: fmt.Sprintf("the network is %s, and only a restricted one has rules", p.Network.Mode),
			Hint: "add --network " + string(workorder.NetworkRestricted),
		}
	}
	old := p.tree.Get("network")
	n := p.networkMapping()
	n.Set("mode", old)
	for _, f := range old.Entries() {
		n.Set(f.Name, f.Value)
	}
	k, _ := n.Schema.Find("allow") // always in the table
	all := &value{Schema: k.Schema, Node: old.Node, Path: KeyAllow, Origin: source, Items: slices.Clone(n.Get("allow").Elements())}
	for rule := range strings.SplitSeq(rules, ",") {
		rule = strings.TrimSpace(rule)
		if _, err := AllowRule(rule); err != nil {
			return &OptionError{Name: source, Message: fmt.Sprintf("%q: %s", rule, err), Hint: allowHint(rule)}
		}
		node := &yaml.Node{Kind: yaml.ScalarNode, Value: rule}
		all.Items = append(all.Items, &value{Schema: k.Item, Node: node, Path: KeyAllow, Origin: source, Text: rule})
	}
	n.Set("allow", all)
	p.tree.Set("network", n)
	bind(p)
	return nil
}
