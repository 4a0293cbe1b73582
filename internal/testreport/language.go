package testreport

import (
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
)

// language is what the rules know of one.
type language struct {
	name string
	// line and block are how comments begin (and end), raw the strings that go
	// over lines, quotes those that end with the line.
	line   []string
	block  [][2]string
	raw    [][2]string
	quotes string
	// indented says that blocks are marked by indentation.
	indented bool
	// regexes says that /…/ is a literal.
	regexes bool
	// file matches the base name of a test file, folder a folder on the way to one.
	file, folder *pattern.Pattern
	// anywhere says that tests also lie in ordinary files.
	anywhere bool
	rules    *rules
}

var cBlock = [][2]string{{"/*", "*/"}}

var (
	golang = &language{
		name: "go", line: []string{"//"}, block: cBlock, raw: [][2]string{{"`", "`"}}, quotes: `"'`,
		file: pattern.New(`_test\.go$`), rules: goRules,
	}
	javascript = &language{
		name: "js", line: []string{"//"}, block: cBlock, raw: [][2]string{{"`", "`"}}, quotes: `"'`, regexes: true,
		file:   pattern.New(`[.\-_](?:test|spec|e2e|cy)\.[cm]?[jt]sx?$|^test[.\-_]?\w*\.[cm]?[jt]sx?$`),
		folder: pattern.New(`^(?:__tests__|tests?|specs?|e2e|cypress)$`), rules: jsRules,
	}
	python = &language{
		name: "python", line: []string{"#"}, raw: [][2]string{{`"""`, `"""`}, {"'''", "'''"}}, quotes: `"'`, indented: true,
		file: pattern.New(`^test_.*\.py$|_tests?\.py$|^tests?\.py$`), rules: pythonRules,
	}
	java = &language{
		name: "java", line: []string{"//"}, block: cBlock, raw: [][2]string{{`"""`, `"""`}}, quotes: `"'`,
		file: pattern.New(`(?:Tests?|IT|Spec|TestCase)\.(?:java|kts?|groovy)$`), folder: pattern.New(`^(?:test|androidTest|integrationTest|\w+Test)$`), rules: javaRules,
	}
	csharp = &language{
		name: "csharp", line: []string{"//"}, block: cBlock, raw: [][2]string{{`"""`, `"""`}}, quotes: `"'`,
		file: pattern.New(`(?:Tests?|Specs?|Fixture)\.cs$`), folder: pattern.New(`(?i)^(?:.*\.)?(?:unit|integration)?tests?$`), rules: csharpRules,
	}
	ruby = &language{
		name: "ruby", line: []string{"#"}, block: [][2]string{{"\n=begin", "\n=end"}}, quotes: `"'`, indented: true,
		file: pattern.New(`_(?:spec|test)\.rb$|^test_.*\.rb$`), rules: rubyRules,
	}
	rust = &language{
		name: "rust", line: []string{"//"}, block: cBlock, raw: [][2]string{{`r#"`, `"#`}}, quotes: `"`,
		file: pattern.New(`^tests?\.rs$|_tests?\.rs$`), folder: pattern.New(`^tests$`), anywhere: true, rules: rustRules,
	}
	php = &language{
		name: "php", line: []string{"//", "#"}, block: cBlock, quotes: `"'`,
		file: pattern.New(`(?:Test|Cest|Spec)\.php$`), folder: pattern.New(`(?i)^tests?$`), rules: phpRules,
	}
)

var byExtension = map[string]*language{
	".go": golang,
	".js": javascript, ".jsx": javascript, ".mjs": javascript, ".cjs": javascript, ".ts": javascript, ".tsx": javascript, ".mts": javascript, ".cts": javascript, ".vue": javascript, ".svelte": javascript,
	".py":   python,
	".java": java, ".kt": java, ".kts": java, ".groovy": java,
	".cs": csharp, ".rb": ruby, ".rs": rust, ".php": php,
}

func languageOf(p string) *language { return byExtension[path.Ext(p)] }

// isTestFile reports whether a runner would look for tests in a file, by its name.
func isTestFile(p string) bool {
	l := languageOf(p)
	if l == nil {
		return false
	}
	dir, base := path.Split(p)
	if l == golang && (base[0] == '_' || base[0] == '.' || strings.Contains("/"+dir, "/testdata/") || strings.Contains("/"+dir, "/_")) {
		return false // go does not look there
	}
	if l.file.MatchString(base) {
		return true
	}
	return l.folder != nil && slices.ContainsFunc(strings.Split(dir, "/"), l.folder.MatchString)
}

// expectation matches files that hold what tests expect: snapshots and golden files.
var expectation = pattern.New(`(?i)(?:^|/)__snapshots__/|(?:^|/)(?:goldens?|golden[-_]files|snapshots?|expected|approvals?)/|\.snap$|\.golden(?:\.\w+)?$|\.approved\.\w+$|\.(?:expected|expect|want)(?:\.\w+)?$|(?:^|/)testdata/.*\.(?:out|stdout|output)$|[._-](?:expected|golden)\.\w+$|(?:^|/)(?:expected|want)[\w-]*\.\w+$|\.ambr$`)

// support matches what lies beside tests and is no product code.
var support = pattern.New(`(?i)(?:^|/)(?:testdata|fixtures?|__fixtures__|__mocks__|mocks?|tests?|specs?|__tests__|testing|testutil\w*|e2e|examples?|docs?|benchmarks?|bench)/|(?:^|/)conftest\.py$|(?:^|/)\w*test[-_]?(?:util|help|ing)\w*\.\w+$`)
