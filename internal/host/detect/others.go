package detect

import (
	"encoding/json"
	"regexp"
	"strings"
)

func (d *detector) rust() {
	f := d.open("Cargo.toml")
	if f == nil {
		return
	}
	at := Position{File: f.name}
	d.need(at, "cargo", "rustc")
	locked := ""
	if d.has("Cargo.lock") {
		at, locked = Position{File: "Cargo.lock"}, " --locked"
	}
	d.setup(at, "cargo fetch"+locked)
	d.check(at, "test", "cargo test"+locked)
}

// jvm takes what Maven's and Gradle's files say; a wrapper brings the version that the repository means.
func (d *detector) jvm() {
	switch gradle := d.first("build.gradle", "build.gradle.kts"); {
	case d.has("pom.xml"):
		at := Position{File: "pom.xml"}
		run := "mvn"
		d.need(at, "default-jdk-headless")
		if d.has("mvnw") {
			run = "sh ./mvnw"
		} else {
			d.need(at, "maven")
		}
		d.setup(at, run+" --batch-mode --quiet test-compile")
		d.check(at, "test", run+" --batch-mode test")
	case gradle != nil:
		at := Position{File: gradle.name}
		run := "gradle"
		d.need(at, "default-jdk-headless")
		if d.has("gradlew") {
			run = "sh ./gradlew"
		} else {
			d.need(at, "gradle")
		}
		d.setup(at, run+" --no-daemon --quiet testClasses")
		d.check(at, "test", run+" --no-daemon test")
	}
}

var (
	rspec   = regexp.MustCompile(`(?m)^\s*(?:gem\s+["']rspec|rspec(?:-rails)? \(|\w+\.add_(?:development_)?dependency[ (]+["']rspec)`)
	rubocop = regexp.MustCompile(`(?m)^\s*(?:gem\s+["']rubocop|rubocop \(|\w+\.add_(?:development_)?dependency[ (]+["']rubocop)`)
	gemspec = regexp.MustCompile(`(?m)^\s*gemspec\b`)
)

// ruby takes what Bundler's files say.
func (d *detector) ruby() {
	f := d.open("Gemfile")
	if f == nil {
		return
	}
	at := Position{File: f.name}
	all := f.text
	if lock := d.open("Gemfile.lock"); lock != nil {
		at, all = Position{File: lock.name}, all+"\n"+lock.text
	}
	from := []*file{f}
	if gemspec.MatchString(f.text) { // a gem's own: its lock file is seldom there
		for _, n := range d.names(".", ".gemspec") {
			if g := d.open(n); g != nil {
				from, all = append(from, g), all+"\n"+g.text
			}
		}
	}
	d.need(at, "ruby", "ruby-dev", "bundler")
	d.setup(at, `bundle config set --global path "$HOME/.bundle/gems"`, "bundle install --quiet")
	switch {
	case rspec.MatchString(all):
		d.check(found(rspec, from), "test", "bundle exec rspec")
	case d.has("Rakefile"):
		d.check(Position{File: "Rakefile"}, "test", "bundle exec rake test")
	}
	if rubocop.MatchString(all) {
		d.check(found(rubocop, from), "lint", "bundle exec rubocop")
	}
}

// found is where the first of several files says something, else the first as a whole.
func found(re *regexp.Regexp, files []*file) Position {
	for _, f := range files {
		if re.MatchString(f.text) {
			return f.find(re)
		}
	}
	return Position{File: files[0].name}
}

type composerJSON struct {
	Scripts    map[string]any `json:"scripts"`
	Require    map[string]any `json:"require"`
	RequireDev map[string]any `json:"require-dev"`
}

// extensions are PHP's that the distribution has in packages of their own, by the name that composer.json has for them.
var extensions = map[string]string{
	"mysqli": "php-mysql", "pdo_mysql": "php-mysql", "pdo_pgsql": "php-pgsql", "pdo_sqlite": "php-sqlite3", "sqlite3": "php-sqlite3",
	"apcu": "php-apcu", "bcmath": "php-bcmath", "bz2": "php-bz2", "curl": "php-curl", "gd": "php-gd", "gmp": "php-gmp",
	"imagick": "php-imagick", "intl": "php-intl", "ldap": "php-ldap", "memcached": "php-memcached", "mongodb": "php-mongodb",
	"pgsql": "php-pgsql", "redis": "php-redis", "soap": "php-soap", "tidy": "php-tidy", "yaml": "php-yaml", "zip": "php-zip",
}

// php takes what Composer's files say.
func (d *detector) php() {
	f := d.open("composer.json")
	if f == nil {
		return
	}
	var manifest composerJSON
	if err := json.Unmarshal([]byte(f.text), &manifest); err != nil {
		d.omit(Position{File: f.name}, f.name, err.Error())
		return
	}
	at := Position{File: f.name}
	if v, _ := manifest.Require["php"].(string); v != "" {
		// Composer's ~ leaves only the last number open.
		d.hint(f.find(scriptLine("php")), "php", strings.ReplaceAll(strings.ReplaceAll(v, "~=", "~"), "~", "~="))
	}
	d.need(at, "php-cli", "php-xml", "php-mbstring", "php-curl", "composer") // Composer fetches one file after the other without curl
	for _, required := range []map[string]any{manifest.Require, manifest.RequireDev} {
		for _, name := range sortedKeys(required) {
			if p := extensions[strings.TrimPrefix(name, "ext-")]; p != "" && strings.HasPrefix(name, "ext-") {
				d.need(f.find(scriptLine(name)), p)
			}
		}
	}
	d.setup(at, "composer install --no-interaction --prefer-dist --no-progress") // --quiet keeps to itself what cannot be installed, and why
	if manifest.Scripts["test"] != nil {
		d.check(f.find(scriptLine("test")), "test", "composer test")
	} else if c := d.first("phpunit.xml", "phpunit.xml.dist"); c != nil {
		d.check(Position{File: c.name}, "test", "vendor/bin/phpunit")
	}
}
