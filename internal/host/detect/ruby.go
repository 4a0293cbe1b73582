package detect

import (
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

var ruby = ecosystem{
	name: "ruby", files: []string{"Gemfile"},
	launchers: lazyregexp.New(`^(?:bundle exec )?(?:\./)?(?:bin/)?`),
	rules: []rule{
		{words: "rspec", kind: kindTest, narrow: rubyPart, needs: "rspec"},
		{words: "rake test", kind: kindTest, narrow: rubyPart},
		{words: "rake spec", kind: kindTest, narrow: rubyPart},
		{words: "rake", kind: kindPrepare, only: lazyregexp.New(`^ (?:\w+:)?(?:setup|prepare|compile)$`)},
		{words: "rake", kind: kindTest, only: lazyregexp.New(`^(?: [\w:]+)* (?:test|spec)$|^$`)},
		{words: "rails test", kind: kindTest, narrow: rubyPart},
		{words: "rails test:system", kind: kindOther, why: "it needs a browser of its own"},
		{words: "rubocop", kind: kindLint, needs: "rubocop", writes: lazyregexp.New(`\s-[aA](?:\s|$)`)},
		{words: "standardrb", kind: kindLint, needs: "standard"},
		{words: "bundle install", kind: kindInstall},
		{words: "bundle config", kind: kindInstall},
		{words: "gem install bundler", kind: kindInstall},
		{words: "gem update", kind: kindNothing},
	},
}

func rubyHas(d *detector, gem string) bool {
	text, _ := gems(d)
	return d.has("bin/"+gem) || lazyregexp.New(`(?m)["'\s]`+gem+`(?:-\w+)*["'\s(]`).MatchString(text)
}

func runRuby(_ *detector, launcher, command string) string {
	if launcher == "" {
		return "bundle exec " + command
	}
	return launcher + command
}

var (
	rubyPart    = lazyregexp.New(`\s(?:-e|-n|-t|--tag|--only|TEST=\S+|[\w/]+_(?:spec|test)\.rb|(?:spec|test)/\S+)(?:[= ]|$)`)
	gemspecLine = lazyregexp.New(`(?m)^\s*gemspec\b`)
	gemfileRuby = lazyregexp.New(`(?m)^ruby\s*\(?\s*["']([^"'\n]+)["']`)
)

// gems are the texts that name the gems, and the file of the first.
func gems(d *detector) (text string, at Position) {
	at = d.whole("Gemfile")
	names := []string{"Gemfile", "Gemfile.lock"}
	if f := d.open("Gemfile"); f != nil && gemspecLine.MatchString(f.text) { // a gem's own: a lock file is rarely there
		names = append(names, d.names(".", "*.gemspec")...)
	}
	for _, n := range names {
		if f := d.open(n); f != nil {
			text += f.text + "\n"
			if n == "Gemfile.lock" {
				at = Position{File: f.name}
			}
		}
	}
	return text, at
}

func readRuby(d *detector, p *part) {
	names, at := gems(d)
	f := d.open("Gemfile")
	if f == nil {
		return
	}
	d.need(at, "ruby", "ruby-dev", "bundler", "libyaml-dev") // psych, which most of Ruby's tools need, builds with libyaml
	needLibraries(d, &ruby, at, names)
	d.matched(f, gemfileRuby, "ruby", "")
	p.install(at, `bundle config set --global path "$HOME/.bundle/gems"`, "bundle install --quiet")
	spec := d.has(".rspec") || d.isDir(strings.TrimPrefix(d.dir+"/spec", "./"))
	switch {
	case spec && rubyHas(d, "rspec"):
		p.convention(d.whole("Gemfile"), "bundle exec rspec")
	case d.has("bin/rails") && d.isDir(strings.TrimPrefix(d.dir+"/test", "./")):
		p.convention(d.whole("bin/rails"), "bin/rails test")
	case d.has("Rakefile"):
		p.convention(d.whole("Rakefile"), "bundle exec rake test")
	}
	if rubyHas(d, "rubocop") {
		p.convention(d.whole("Gemfile"), "bundle exec rubocop")
	}
}
