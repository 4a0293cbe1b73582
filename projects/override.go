package projects

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// OptionError is a value from outside the file (a flag, the environment) that
// the project cannot have.
type OptionError struct{ Name, Message, Hint string }

func (e *OptionError) Error() string {
	return fmt.Sprintf("%s: %s", e.Name, e.Message)
}

// ExitCode is the exit code of the CLI for this error.
func (e *OptionError) ExitCode() int { return workorder.ExitUsage }

// Override replaces the value of a top-level key by one from outside the file,
// with the same checks. source names where it comes from, for messages and for
// `project show --effective`: a flag or a variable. Keys that hold a list or a
// mapping without a short form cannot be replaced.
func (p *Project) Override(name, val, source string) error {
	if name == KeyAllow {
		return p.allow(val, source)
	}
	if name == KeyCommand {
		return p.command(val, source)
	}
	root := definition()
	k, ok := root.find(name)
	if !ok {
		return fmt.Errorf("override project key %q: there is no such key", name)
	}
	d := &decoder{src: newSource(source, ""), root: root, origin: source}
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: val}
	if name == "harness" && val == p.Harness.Name {
		return nil // the same harness by name keeps the mapping's command and model
	}
	v := d.decode(k.schema, n, n, name)
	if problems := d.found(); len(problems) > 0 {
		first := problems[0]
		if first.Code == codeMissing { // what a single value has no room for
			first.Hint = "add --command, or in the project file, " + first.Hint + "; `sandbox-agent project init` makes one"
		}
		return &OptionError{Name: source, Message: first.Message, Hint: first.Hint}
	}
	if name == "repo" {
		// A path on the command line starts from where the user is.
		v.text = git.AbsRepoFrom(v.text, p.options.Dir, p.options.Home)
	}
	if name == "network" {
		v = p.networkOf(v)
	}
	p.tree.set(name, v)
	bind(p)
	return nil
}

// KeyAllow is the key of the rules of a restricted network. It is added to, not replaced.
const KeyAllow = "network.allow"

// KeyCommand is the key of the command harness's program. To replace it chooses that harness.
const KeyCommand = "harness.command"

func (p *Project) command(val, source string) error {
	root := definition()
	k, _ := root.find("harness") // it is in the table
	d := &decoder{src: newSource(source, ""), root: root, origin: source}
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, text := range []string{"name", workorder.HarnessCommand, "command", val} {
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: text})
	}
	v := d.decode(k.schema, n, n, "harness")
	if problems := d.found(); len(problems) > 0 {
		return &OptionError{Name: source, Message: problems[0].Message, Hint: problems[0].Hint}
	}
	p.tree.set("harness", v)
	bind(p)
	return nil
}

// networkOf is the project's network in another mode: its resolvers stay, and its
// rules where the mode has any.
func (p *Project) networkOf(mode *value) *value {
	n, old := p.networkMapping(), p.tree.get("network")
	n.set("mode", mode)
	for _, f := range old.entries() {
		if f.name == "dns" || f.name != "mode" && mode.text == string(workorder.NetworkRestricted) {
			n.set(f.name, f.value)
		}
	}
	return n
}

func (p *Project) networkMapping() *value {
	old := p.tree.get("network")
	return &value{schema: network(), node: old.node, path: old.path, origin: old.origin}
}

// allow adds rules, separated by commas, to those of the file.
func (p *Project) allow(rules, source string) error {
	if p.Network.Mode != workorder.NetworkRestricted {
		return &OptionError{
			Name: source, Message: fmt.Sprintf("the network is %s, and only a restricted one has rules", p.Network.Mode),
			Hint: "add --network " + string(workorder.NetworkRestricted),
		}
	}
	old := p.tree.get("network")
	n := p.networkMapping()
	n.set("mode", old)
	for _, f := range old.entries() {
		n.set(f.name, f.value)
	}
	k, _ := n.schema.find("allow") // it is in the table
	all := &value{schema: k.schema, node: old.node, path: KeyAllow, origin: source, items: slices.Clone(n.get("allow").entriesOf())}
	for rule := range strings.SplitSeq(rules, ",") {
		rule = strings.TrimSpace(rule)
		if _, err := AllowRule(rule); err != nil {
			return &OptionError{Name: source, Message: fmt.Sprintf("%q: %s", rule, err), Hint: allowHint(rule)}
		}
		node := &yaml.Node{Kind: yaml.ScalarNode, Value: rule}
		all.items = append(all.items, &value{schema: k.item, node: node, path: KeyAllow, origin: source, text: rule})
	}
	n.set("allow", all)
	p.tree.set("network", n)
	bind(p)
	return nil
}
