package detect

import (
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// libraries have the headers that packages of an ecosystem build with, and that the machines of pipelines have.
var libraries = []struct {
	eco      *ecosystem
	names    *lazyregexp.Pattern
	packages []string
}{
	{&python, pythonName("psycopg2"), []string{"libpq-dev"}},
	{&python, pythonName("mysqlclient"), []string{"default-libmysqlclient-dev"}},
	{&python, pythonName("pycurl"), []string{"libcurl4-openssl-dev", "libssl-dev"}},
	{&python, pythonName("python-ldap"), []string{"libldap-dev", "libsasl2-dev"}},
	{&ruby, rubyName("pg"), []string{"libpq-dev"}},
	{&ruby, rubyName("mysql2"), []string{"default-libmysqlclient-dev"}},
	{&ruby, rubyName("trilogy"), []string{"libssl-dev"}},
	{&rust, lazyregexp.New(`"(?:openssl-sys|openssl|native-tls)"|(?m)^(?:openssl|native-tls)\b`), []string{"libssl-dev"}},
	{&rust, lazyregexp.New(`"pq-sys"|(?m)^pq-sys\b`), []string{"libpq-dev"}},
	{&rust, lazyregexp.New(`"mysqlclient-sys"|(?m)^mysqlclient-sys\b`), []string{"default-libmysqlclient-dev"}},
	{&rust, lazyregexp.New(`"libsqlite3-sys"|(?m)^libsqlite3-sys\b`), []string{"libsqlite3-dev"}},
}

func pythonName(name string) *lazyregexp.Pattern {
	return lazyregexp.New(`(?mi)(?:^|["'\s])` + name + `(?:["'\s<>=~!;\[,]|$)`)
}

func rubyName(name string) *lazyregexp.Pattern {
	return lazyregexp.New(`(?m)["']` + name + `["']|^\s+` + name + ` \(`)
}

var (
	// browserDrivers are libraries of several languages that start a browser.
	browserDrivers = lazyregexp.New(`\b` + among("playwright puppeteer pyppeteer cypress selenium webdriverio agent-browser testcafe "+
		"chrome-launcher chromedp go-rod cuprite") + `\b`)
	manifests = lazyregexp.New(`(?:^|/)(?:package\.json|pyproject\.toml|setup\.(?:py|cfg)|[\w-]*requirements[\w-]*\.(?:txt|in)|Pipfile|` +
		`Gemfile|go\.mod|composer\.json|pom\.xml|build\.gradle(?:\.kts)?|mix\.exs)$`)
)

// drivesBrowser looks for a library that starts a browser in the manifests that were read.
func (s *source) drivesBrowser() {
	for _, name := range sortedKeys(s.cache) {
		if f := s.cache[name]; f != nil && manifests.MatchString(name) && browserDrivers.MatchString(f.text) {
			s.Browser = f.find(browserDrivers)
			return
		}
	}
}

// needLibraries adds the headers for what a text lists.
func needLibraries(d *detector, eco *ecosystem, at Position, text string) {
	for _, l := range libraries {
		if l.eco == eco && l.names.MatchString(text) {
			d.need(at, l.packages...)
		}
	}
}
