package testreport

import "github.com/sandbox-agent/sandbox-agent/internal/pattern"

// rules are a language's patterns. All but title and comment patterns are matched on
// code without comments and without what strings say.
type rules struct {
	// named declares a test by its name alone (group 1), marked is what stands
	// above a function (fn, group 1) that is a test, titled begins one whose name is a string.
	named, marked, fn, titled *pattern.Pattern
	// group is what holds tests, with a title.
	group *pattern.Pattern
	// assert is a line that can fail the test.
	assert *pattern.Pattern
	// skip stops a test or a group, skipIf may, only keeps the others from running.
	skip, skipIf, only *pattern.Pattern
	// todo is a test that is announced and has no body.
	todo *pattern.Pattern
	// swallow begins what hides an error of the lines around it; handler is one
	// whose block has to be empty for that.
	swallow, handler *pattern.Pattern
}

var re = pattern.New

// emptyCatch begins a handler in the languages with braces.
var emptyCatch = re(`\bcatch\b\s*(?:\([^)]*\))?\s*(?:when\b.*)?\{|\.catch\(\s*(?:\(?\w*\)?\s*=>|function\s*\(\w*\))\s*\{`)

var goRules = &rules{
	named:   re(`^func (?:\([^)]*\) )?((?:Test|Fuzz|Example)(?:[^a-z\W]\w*)?)\(`),
	assert:  re(`\b\w{1,3}\.(?:Error|Errorf|Fatal|Fatalf|Fail|FailNow)\(|\b(?:assert|require|qt|is|should)\.\w+\(|\b(?:[aA]ssert|[cC]heck|[eE]xpect|[vV]erify|[wW]ant)[A-Z]?\w*\(|\bExpect\(`),
	skip:    re(`\b\w{1,3}\.(?:Skip|Skipf|SkipNow)\(`),
	swallow: re(`\brecover\(\)`),
}

var jsRules = &rules{
	titled:  re(`(?:^|[^\w.$])((?:Deno\.|QUnit\.)?[xf]?(?:it|test|specify)(?:\.\w+)*)\s*(?:\(|\x60)`),
	group:   re(`(?:^|[^\w.$])([xf]?(?:describe|context|suite)(?:\.\w+)*)\s*(?:\(|\x60)`),
	assert:  re(`\bexpect\w*\s*\(|\bassert\w*\s*[.(]|\.should\b|\bshould\s*[.(]|\.expect\(|\bt\.(?:is|not|deepEqual|true|false|truthy|falsy|equal|notEqual|same|match|like|ok|notOk|throws|rejects|snapshot|strictEqual)\b\s*\(`),
	skip:    re(`(?:^|[^\w.$])x(?:it|test|specify|describe|context|suite)(?:\.\w+)*\s*\(|\b(?:it|test|specify|describe|context|suite)(?:\.\w+)*\.(?:skip|fixme|todo|failing|fails)\b|\b(?:this|ctx|context|t)\.skip\(|[{,]\s*(?:skip|todo)\s*:\s*(?:true|["'\x60])`),
	skipIf:  re(`\.(?:skipIf|runIf)\(`),
	only:    re(`\b(?:it|test|specify|describe|context|suite)(?:\.\w+)*\.only\b|(?:^|[^\w.$])f(?:it|describe|context)\s*\(`),
	todo:    re(`\b(?:it|test)(?:\.\w+)*\.todo\b`),
	handler: emptyCatch,
}

var pythonRules = &rules{
	named:   re(`^\s*(?:async\s+)?def\s+(test\w*)\s*\(`),
	group:   re(`^\s*class\s+(\w+)`),
	assert:  re(`(?:^|[:;])\s*assert\b|\bself\.(?:assert|fail)\w*\(|\bpytest\.(?:raises|warns|fail|approx)\b|\bassert_\w+\(|\.assert_\w+\(|\bnpt?\.testing\.`),
	skip:    re(`^\s*@(?:\w+\.)*(?:skip|xfail|expectedFailure|nottest)\b|\bpytest\.(?:skip|xfail)\(|\.skipTest\(|\bSkipTest\b|__test__\s*=\s*False|\bmark\.(?:skip|xfail)\b|\bcollect_ignore`),
	skipIf:  re(`\b(?:skipif|skipIf|skipUnless|importorskip)\b`),
	swallow: re(`\bsuppress\(|^\s*except\b[^:]*:\s*(?:pass|\.\.\.|return|continue)\s*$`),
	handler: re(`^\s*except\b[^:]*:\s*$`),
}

var javaRules = &rules{
	named:   re(`^\s*(?:public\s+)?void\s+(test\w*)\s*\(`),
	marked:  re(`@(?:[\w.]*\.)?(?:Test|ParameterizedTest|RepeatedTest|TestFactory|TestTemplate|Property)\b`),
	fn:      re("(?:\\bfun|[\\w>\\]])\\s+(`[^`]+`|\\w+)\\s*\\("),
	assert:  re(`\b(?:assert|fail|verify|expect|should|check)\w*\s*[(.<{]|\.should\w*|\bshould\w+\b|\.isEqualTo\(|\bthen\(`),
	skip:    re(`@(?:[\w.]*\.)?(?:Disabled|Ignore)\b|\benabled\s*=\s*false|\bassume(?:True\(\s*false|False\(\s*true)`),
	skipIf:  re(`@(?:Disabled|Enabled)(?:On|If|For)\w*|\bassume\w*\(|\bAssum\w+\.`),
	handler: emptyCatch,
}

var csharpRules = &rules{
	marked:  re(`^\s*\[(?:.*[,\s])?(?:Fact|Theory|Test|TestCase|TestCaseSource|TestMethod|DataTestMethod|SkippableFact)\b`),
	fn:      re(`[\w>\]]\s+(\w+)\s*(?:<[^>]*>)?\s*\(`),
	assert:  re(`\b(?:\w*Assert|Verify|Expect)\w*\s*[.(]|\.Should\w*\(|\.Verify\w*\(|\.Received\(`),
	skip:    re(`\bSkip\s*=|\[(?:.*[,\s])?(?:Ignore|Explicit)\b|\bAssert\.(?:Ignore|Inconclusive|Skip)\(`),
	skipIf:  re(`\bSkip\.If|\bAssert\.SkipWhen|\bAssume\.`),
	handler: emptyCatch,
}

var rubyRules = &rules{
	named:   re(`^\s*def\s+(test_\w+)`),
	titled:  re(`^\s*([xf]?(?:it|specify|example|scenario)|test|should)\b[ (]*["']`),
	group:   re(`^\s*(?:RSpec\.)?([xf]?(?:describe|context|feature))\b`),
	assert:  re(`\b(?:assert|refute|flunk)\w*\b|\bexpect\b|\.should(?:_not)?\b|\b(?:must|wont)_\w+|\bis_expected\b`),
	skip:    re(`^\s*x(?:it|specify|example|scenario|describe|context|feature)\b|^\s*(?:skip|pending)\b|,\s*(?::skip|:pending|(?:skip|pending):\s*(?:true|["']))`),
	only:    re(`^\s*f(?:it|describe|context)\b|,\s*(?::focus|focus:\s*true)`),
	swallow: re(`\brescue\b`),
}

var rustRules = &rules{
	marked:  re(`#\[(?:\w+::)*(?:test|rstest|test_case|quickcheck|wasm_bindgen_test|bench_test)\b`),
	fn:      re(`\bfn\s+(\w+)`),
	assert:  re(`\b(?:debug_)?assert\w*!|\bpanic!|\bprop_assert\w*!|\bassert_\w+\(|\bunreachable!`),
	skip:    re(`#\[ignore\b|#\[cfg\((?:any\(\)|FALSE|false)\)\]`),
	skipIf:  re(`#\[cfg_attr\(.*\bignore\b|#\[cfg\((?:feature|not|target_)`),
	swallow: re(`#\[should_panic\b|\bcatch_unwind\(`),
}

var phpRules = &rules{
	named:   re(`\bfunction\s+(test\w*)\s*\(`),
	marked:  re(`#\[(?:\\?\w+\\)*Test\b`),
	fn:      re(`\bfunction\s+(\w+)\s*\(`),
	titled:  re(`^\s*(it|test)\(\s*["']`),
	assert:  re(`\bassert\w*\(|::assert\w*|->assert\w*|\bexpect\w*\(|->should\w*`),
	skip:    re(`\bmarkTest(?:Skipped|Incomplete)\(|->(?:skip|todo)\(`),
	skipIf:  re(`\bmarkTestSkippedIf|RequiresPhp`),
	only:    re(`->only\(\)`),
	handler: emptyCatch,
}
