package detect

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

var php = ecosystem{
	name: "php", files: []string{"composer.json"},
	launchers: lazyregexp.New(`^(?:composer exec (?:-- )?|(?:php )?(?:\./)?(?:vendor/bin/)?)`),
	rules: []rule{
		{words: "phpunit", kind: kindTest, narrow: phpPart, drop: phpCoverage, needs: "phpunit/phpunit"},
		{words: "simple-phpunit install", kind: kindPrepare},
		{words: "simple-phpunit", kind: kindTest, narrow: phpPart, drop: phpCoverage, needs: "symfony/phpunit-bridge"},
		{words: "pest", kind: kindTest, narrow: phpPart, drop: phpCoverage, needs: "pestphp/pest"},
		{words: "artisan test", kind: kindTest, narrow: phpPart},
		{words: "phpcs", kind: kindLint, needs: "squizlabs/php_codesniffer"},
		{words: "phpstan", kind: kindLint, needs: "phpstan/phpstan"},
		{words: "psalm", kind: kindLint, needs: "vimeo/psalm", drop: lazyregexp.New(`\s--shepherd\b`)},
		{words: "php-cs-fixer", kind: kindFormat, must: lazyregexp.New(`\s--dry-run`), needs: "friendsofphp/php-cs-fixer"},
		{words: "pint", kind: kindFormat, must: lazyregexp.New(`\s--test`), needs: "laravel/pint"},
		{words: "composer install", kind: kindInstall},
		{words: "composer update", kind: kindInstall},
		{words: "composer validate", kind: kindNothing},
	},
}

func phpHas(d *detector, name string) bool {
	m := composer(d)
	return m.RequireDev[name] != nil || m.Require[name] != nil
}

func runPHP(_ *detector, launcher, command string) string {
	if launcher == "" || strings.HasPrefix(launcher, "composer exec") {
		return "vendor/bin/" + strings.Replace(command, " -- ", " ", 1)
	}
	return launcher + command
}

var composerForm = lazyregexp.New(`^composer(?: run(?:-script)?)? ([A-Za-z0-9:_-]+)(?:\s+--?.*)?$`)

// composerTask finds the script of composer.json that a command runs.
func composerTask(d *detector, text string) (name, content string, ok bool) {
	m := composerForm.FindStringSubmatch(text)
	if m == nil {
		return "", "", false
	}
	script, ok := composer(d).Scripts[m[1]]
	lines, list := script.([]any)
	if !list {
		return m[1], fmt.Sprint(script), ok
	}
	for _, l := range lines {
		content += strings.Replace(fmt.Sprint(l), "@", "composer ", 1) + "\n"
	}
	return m[1], content, ok
}

// phpCoverage are arguments that need an extension which only measures coverage.
var phpCoverage = lazyregexp.New(`\s--coverage(?:-\S+)?`)

var phpPart = lazyregexp.New(`\s--(?:filter|group|testsuite)\b|\stests/`)

type composerJSON struct {
	Scripts    map[string]any `json:"scripts"`
	Require    map[string]any `json:"require"`
	RequireDev map[string]any `json:"require-dev"`
}

func composer(d *detector) (m composerJSON) {
	if f := d.open("composer.json"); f != nil {
		if err := json.Unmarshal([]byte(f.text), &m); err != nil {
			d.omit(Position{File: f.name}, f.name, "%v", err)
			return composerJSON{}
		}
	}
	return m
}

// extensions are the packages of PHP's extensions, by the name that composer.json has for them.
var extensions = map[string]string{
	"mysqli": "php-mysql", "pdo_mysql": "php-mysql", "pdo_pgsql": "php-pgsql", "pdo_sqlite": "php-sqlite3", "sqlite3": "php-sqlite3",
	"apcu": "php-apcu", "bcmath": "php-bcmath", "bz2": "php-bz2", "curl": "php-curl", "gd": "php-gd", "gmp": "php-gmp",
	"imagick": "php-imagick", "intl": "php-intl", "ldap": "php-ldap", "memcached": "php-memcached", "mongodb": "php-mongodb",
	"pgsql": "php-pgsql", "redis": "php-redis", "soap": "php-soap", "tidy": "php-tidy", "yaml": "php-yaml", "zip": "php-zip",
}

func readPHP(d *detector, p *part) {
	f, m := d.open("composer.json"), composer(d)
	if f == nil || m.Require == nil && m.RequireDev == nil && m.Scripts == nil {
		return
	}
	at := Position{File: f.name}
	if v, _ := m.Require["php"].(string); v != "" {
		// Composer's ~ leaves only the last number open. The distribution alone has PHP: a pipeline's version does not count.
		d.tool(f.find(keyLine("php")), "php", strings.ReplaceAll(strings.ReplaceAll(v, "~=", "~"), "~", "~="))
	}
	// Without curl Composer fetches one file after the other.
	d.need(at, "php-cli", "php-xml", "php-mbstring", "php-curl", "php-sqlite3", "composer")
	for _, required := range []map[string]any{m.Require, m.RequireDev} {
		for _, name := range sortedKeys(required) {
			if pkg := extensions[strings.TrimPrefix(name, "ext-")]; pkg != "" && strings.HasPrefix(name, "ext-") {
				d.need(f.find(keyLine(name)), pkg)
			}
		}
	}
	p.install(at, "composer install --no-interaction --prefer-dist --no-progress") // --quiet would hide what cannot be installed, and why
	if m.Scripts["test"] != nil {
		p.convention(f.find(keyLine("test")), "composer test")
	} else if c := d.first("phpunit.xml", "phpunit.xml.dist"); c != nil {
		command := "vendor/bin/phpunit"
		if phpHas(d, "symfony/phpunit-bridge") && !phpHas(d, "phpunit/phpunit") {
			command = "vendor/bin/simple-phpunit"
		}
		p.add(Position{File: c.name}, kindTest, command)
	}
}
