package testreport

import (
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// re is short, for tables of patterns.
var re = lazyregexp.New

// testNames match a language's test files: file by base name, dir by a directory above them.
type testNames struct{ file, dir *lazyregexp.Pattern }

var (
	goNames = testNames{file: re(`_test\.go$`)}
	jsNames = testNames{
		file: re(`[.\-_](?:test|spec|e2e|cy)\.[cm]?[jt]sx?$|^test[.\-_]?\w*\.[cm]?[jt]sx?$`),
		dir:  re(`^(?:__tests__|tests?|specs?|e2e|cypress)$`),
	}
	pythonNames = testNames{file: re(`^test_.*\.py$|_tests?\.py$|^tests?\.py$`)}
	javaNames   = testNames{
		file: re(`(?:Tests?|IT|Spec|TestCase)\.(?:java|kts?|groovy)$`),
		dir:  re(`^(?:test|androidTest|integrationTest|\w+Test)$`),
	}
	csharpNames = testNames{file: re(`(?:Tests?|Specs?|Fixture)\.cs$`), dir: re(`(?i)^(?:.*\.)?(?:unit|integration)?tests?$`)}
	rubyNames   = testNames{file: re(`_(?:spec|test)\.rb$|^test_.*\.rb$`)}
	rustNames   = testNames{file: re(`^tests?\.rs$|_tests?\.rs$`), dir: re(`^tests$`)}
	phpNames    = testNames{file: re(`(?:Test|Cest|Spec)\.php$`), dir: re(`(?i)^tests?$`)}
)

// programs are the extensions of source files, with the names of their tests.
var programs = map[string]testNames{
	".go": goNames,
	".js": jsNames, ".jsx": jsNames, ".mjs": jsNames, ".cjs": jsNames, ".ts": jsNames, ".tsx": jsNames, ".mts": jsNames, ".cts": jsNames,
	".vue": jsNames, ".svelte": jsNames,
	".py":   pythonNames,
	".java": javaNames, ".kt": javaNames, ".kts": javaNames, ".groovy": javaNames,
	".cs": csharpNames, ".rb": rubyNames, ".rs": rustNames, ".php": phpNames,
}

func isProgram(p string) bool {
	_, ok := programs[path.Ext(p)]
	return ok
}

// isTest reports whether a file is a test file by its name.
func isTest(p string) bool {
	names, ok := programs[path.Ext(p)]
	if !ok {
		return false
	}
	if path.Ext(p) == ".go" && ignoredByGo.MatchString("/"+p) {
		return false
	}
	dir, base := path.Split(p)
	return names.file.MatchString(base) || names.dir != nil && slices.ContainsFunc(strings.Split(dir, "/"), names.dir.MatchString)
}

var ignoredByGo = re(`/testdata/|/_|/\.[^/]*$`)

var (
	// testData matches files that tests read, expectation those with expected output.
	testData = re(`(?:^|/)(?:testdata|fixtures|__\w+__|tests?|e2e)/|(?:^|/)conftest\.py$|(?:^|/)spec/.*\.rb$`)

	expectation = re(`(?i)(?:^|/)(?:goldens?|golden[-_]files|snapshots?|expected|approvals?)/|\.snap$|\.ambr$|\.approved\.\w+$` +
		`|\.(?:expected|expect|want|golden)(?:\.\w+)?$|[._-](?:expected|golden)\.\w+$|(?:^|/)(?:expected|want)[\w-]*\.\w+$`)
)

func ofTests(p string) bool {
	return p != "" && (isTest(p) || testData.MatchString(p) || !isProgram(p) && expectation.MatchString(p))
}
