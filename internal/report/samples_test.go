package report

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	base = "3f1c9a7d5e2b48c6a0917f4d8e6b2c5a1d3f9e70"
	head = "b7e24d90c1a85f3e6d7290ab4c8e1f5039d2a6b4"
)

var began = time.Date(2026, 11, 20, 14, 2, 9, 0, time.FixedZone("CET", 3600))

// samples are the reports that have a golden file.
func samples() map[string]Data {
	return map[string]Data{
		"success": success(), "failure": failure(), "cheats": cheats(),
		"parked": parked(), "nothing": nothing(), "huge": huge(),
	}
}

// order is what all samples were asked.
func order() Order {
	return Order{
		Task: "Give a discount of 10 % from three items on.\n\nThe total of the basket must show it as a line of its own.\n" +
			"Round half up, to whole cents. Ask @maria if #12 is unclear; see https://example.com/spec and <b>the old code</b>.",
		Project: "demo", Harness: "claude-code", Model: "claude-sonnet-4-5", Network: workorder.NetworkRestricted,
		Allow: []string{"registry.npmjs.org"}, BudgetUSD: 2, TimeoutMinutes: 45,
	}
}

func links(d *Data) {
	d.CommitURL = func(sha string) string { return "https://github.example/acme/shop/commit/" + sha }
	d.FileURL = func(sha, path string, n int) string {
		u := "https://github.example/acme/shop/blob/" + sha + "/" + strings.ReplaceAll(path, " ", "%20")
		if n > 0 {
			u += fmt.Sprintf("#L%d", n)
		}
		return u
	}
}

func result() *workorder.Result {
	cost := 0.4231
	code := 0
	return &workorder.Result{
		Version: 1, TaskID: "T-4K9QZ7AB", Project: "demo", Mode: workorder.ModeCreate, Attempt: 1, AttemptID: "00112233445566aa",
		Status: workorder.StatusSuccess, EndedBy: workorder.EndedByAgent, StartedAt: began, DurationMS: 751_400,
		Repo: "https://github.example/acme/shop.git", BaseBranch: "main", Branch: "agent/T-4K9QZ7AB-give-a-discount", BaseSHA: base,
		HeadSHA: head, Pushed: true,
		Commits: []workorder.Commit{
			{SHA: "91d0c7e5a4b3f28160de59c7ab1234ef98765d01", Subject: "basket: discount from three items on", Author: "sandbox-agent"},
			{SHA: head, Subject: "page: show the discount as a line of its own", Author: "sandbox-agent"},
		},
		Steps: []workorder.Step{
			{Name: "prepare", Status: workorder.StepDone, StartedAt: began, DurationMS: 420},
			{Name: "services", Status: workorder.StepDone, StartedAt: began.Add(400 * time.Millisecond), DurationMS: 8_100},
			{Name: "clone", Status: workorder.StepDone, StartedAt: began.Add(500 * time.Millisecond), DurationMS: 2_300},
			{Name: "packages", Status: workorder.StepSkipped, Error: "the project names none"},
			{Name: "setup", Status: workorder.StepDone, StartedAt: began.Add(9 * time.Second), DurationMS: 31_000},
			{Name: "agent", Status: workorder.StepDone, StartedAt: began.Add(40 * time.Second), DurationMS: 584_000, ExitCode: &code},
			{Name: "validate", Status: workorder.StepDone, StartedAt: began.Add(625 * time.Second), DurationMS: 61_000},
			{Name: "preview", Status: workorder.StepDone, StartedAt: began.Add(687 * time.Second), DurationMS: 44_000},
			{Name: "push", Status: workorder.StepDone, StartedAt: began.Add(732 * time.Second), DurationMS: 1_900},
		},
		Agent: workorder.Agent{
			Harness: "claude-code", Version: "2.1.0", Model: "claude-sonnet-4-5", ExitCode: &code, Turns: 18,
			Final: "I added `Discount()` to the basket and a line to the page.\n\n- All tests pass.\n- Nothing else was touched.",
		},
		Usage: workorder.Usage{
			CostUSD: &cost, CostSource: workorder.CostByGateway, InputTokens: 4210, OutputTokens: 11873,
			CacheReadTokens: 812_044, CacheWriteTokens: 63_120,
		},
		Validation: []workorder.Validation{
			{Name: "test", Command: "go test -json ./... > report.json", Passed: true, DurationMS: 21_000},
			{Name: "lint", Command: "golangci-lint run", Passed: true, DurationMS: 9_000},
		},
		Proof: &workorder.Proof{Base: base, Head: head, Checks: []workorder.CheckProof{
			{
				Name: "test", Command: "go test -json ./... > report.json", Transition: workorder.TransitionFixed, Report: "go test -json",
				Base: &workorder.CheckRun{
					ExitCode: 1, DurationMS: 20_100, Log: "logs/proof-base-test.log",
					Tests: &workorder.TestCounts{Passed: 41, Failed: 1},
				},
				Head: &workorder.CheckRun{
					Passed: true, DurationMS: 21_000, Log: "logs/proof-head-test.log",
					Tests: &workorder.TestCounts{Passed: 44},
				},
				Counts: map[workorder.Transition]int{workorder.TransitionStillPasses: 41, workorder.TransitionFixed: 1, workorder.TransitionNewPasses: 2},
				Tests: []workorder.TestChange{
					{Suite: "example.com/shop/basket", Name: "TestTotal/three_items", Transition: workorder.TransitionFixed},
					{Suite: "example.com/shop/basket", Name: "TestDiscountRounds", Transition: workorder.TransitionNewPasses},
					{Suite: "example.com/shop/page", Name: "TestPageShowsDiscount", Transition: workorder.TransitionNewPasses},
				},
			},
			{
				Name: "lint", Command: "golangci-lint run", Transition: workorder.TransitionStillPasses,
				Base: &workorder.CheckRun{Passed: true, DurationMS: 9_400}, Head: &workorder.CheckRun{Passed: true, DurationMS: 9_000},
			},
		}},
		Surface: []workorder.SurfaceFinding{
			{Kind: "recipe", Path: "Makefile", Line: 14, Text: "target \"demo\" has a new command: go run ./cmd/shop"},
		},
		Network: &workorder.NetworkReport{Mode: workorder.NetworkRestricted, Hosts: []workorder.NetworkHost{
			{Host: "registry.npmjs.org", Port: 443, Protocol: "tcp", Status: workorder.NetworkAllowed, Count: 31},
			{
				Host: "telemetry.example.net", Port: 443, Protocol: "tcp", Status: workorder.NetworkRefused, Count: 4,
				By: []string{"npm install (412)"}, Reason: "no rule allows it", Rule: "- telemetry.example.net",
			},
			{
				Host: "169.254.169.254", Port: 80, Protocol: "tcp", Status: workorder.NetworkRefused, Count: 1, By: []string{"curl (977)"},
				Reason: "the metadata of a cloud can never be allowed",
			},
		}},
		Refusals: []workorder.Refusal{{
			Rule: "privileged", Count: 2, Text: "a container must not be privileged",
			By: "docker run --privileged (981)",
		}},
		PR:       &workorder.PR{Number: 47, URL: "https://github.example/acme/shop/pull/47", State: "open"},
		Image:    workorder.Image{ID: "sha256:6cc1d0", Digest: "sha256:6cc1d0e4f5", Name: "sandbox-agent:2.0.0"},
		Platform: workorder.Platform{Isolation: "confined", EngineVersion: "28.5.2", InnerVersion: "28.5.2", Kernel: "6.12.8"},
	}
}

// success has everything, and nothing speaks against it.
func success() Data {
	raw := "https://github.example/acme/shop/raw/5d2f/T-4K9QZ7AB/"
	shot := func(group, file string, s Side, w, h int, note string) EvidenceLink {
		return EvidenceLink{
			Name: group, Kind: workorder.EvidenceScreenshot, URL: raw + file, Path: "evidence/" + file, Group: group,
			Side: s, Width: w, Height: h, Note: note,
		}
	}
	d := Data{
		Result: result(), Order: order(), Files: os.DirFS("testdata"),
		Evidence: []EvidenceLink{
			shot("/basket at 900 px", "basket-head.png", sideHead, 900, 520, "4.8 % of the pixels differ"),
			shot("/basket at 900 px", "basket-base.png", sideBase, 900, 520, ""),
			shot("/basket at 900 px", "basket-diff.png", sideDiff, 900, 520, ""),
			shot("/basket at 500 px", "basket-head-phone.png", sideHead, 500, 640, "6.1 % of the pixels differ"),
			shot("/basket at 500 px", "basket-base-phone.png", sideBase, 500, 640, ""),
			{Name: "A walk through the pages", Kind: workorder.EvidenceVideo, URL: raw + "walk.webm", Path: "evidence/walk.webm", Note: "4 s"},
			{Name: "Console of the browser", Kind: "log", URL: raw + "console.txt", Path: "evidence/console.txt"},
		},
		Versions: []Version{{"sandbox-agent", "v2.0.0 (b7e24d9)"}},
	}
	d.Result.Changes = map[string][]workorder.FileChange{
		"91d0c7e5a4b3f28160de59c7ab1234ef98765d01": {{Path: "basket/basket.go", Added: 24, Deleted: 3}, {
			Path:  "basket/basket_test.go",
			Added: 31,
		}},
		head: {
			{Path: "page/page.go", Added: 9, Deleted: 1},
			{Path: "page/page_test.go", Added: 18},
			{Path: "Makefile", Added: 3},
			{Path: "page/icon.png", Binary: true},
		},
	}
	d.Next = append(RevisePR(47, "T-4K9QZ7AB", d.Result.Status), TakeOver("https://example.com/shop.git", d.Result.Branch))
	links(&d)
	return d
}

func failure() Data {
	d := success()
	r := d.Result
	r.Status, r.EndedBy, r.Reasons = workorder.StatusFailed, workorder.EndedByValidation, workorder.Because(workorder.ReasonValidation,
		"validate command \"test\" failed with exit code 1")
	r.Validation[0].Passed, r.Validation[0].ExitCode = false, 1
	r.Validation[0].Tail = "--- FAIL: TestTotal (0.00s)\n    basket_test.go:31: total is 20.40, want 18.36\nFAIL\n" +
		"FAIL\texample.com/shop/basket\t0.004s\n"
	c := &r.Proof.Checks[0]
	c.Transition = workorder.TransitionBroken
	c.Base = &workorder.CheckRun{Passed: true, DurationMS: 20_100, Tests: &workorder.TestCounts{Passed: 42}}
	c.Head = &workorder.CheckRun{ExitCode: 1, DurationMS: 21_000, Tests: &workorder.TestCounts{Passed: 41, Failed: 1}}
	c.Counts = map[workorder.Transition]int{workorder.TransitionBroken: 1, workorder.TransitionStillPasses: 41}
	c.Tests = []workorder.TestChange{{
		Suite: "example.com/shop/basket", Name: "TestTotal", Transition: workorder.TransitionBroken,
		Text: "basket_test.go:31: total is 20.40, want 18.36",
	}}
	r.Proof.TestFindings = []workorder.TestFinding{{
		Kind: workorder.FindingBrokenOnHead, Path: "basket/basket_test.go",
		Text: "TestTotal passed on base and fails on head",
	}}
	d.Evidence, r.Network, r.Refusals = nil, nil, nil
	d.Next = append(RevisePR(47, r.TaskID, r.Status), TakeOver("https://example.com/shop.git", r.Branch))
	return d
}

func cheats() Data {
	d := success()
	r := d.Result
	r.Proof.TestFindings = []workorder.TestFinding{
		{Kind: workorder.FindingTestEdited, Path: "basket/basket_test.go", Text: "+2 −9", Added: 2, Deleted: 9},
		{Kind: workorder.FindingBaseTests, Text: "check \"test\": base's tests on head's code: 1 fails: example.com/shop/basket > TestTotal"},
		{Kind: workorder.FindingHardCoded, Path: "basket/basket.go", Line: 18, Text: "returns 18.36, which TestTotal expects"},
		{Kind: workorder.FindingTestDeleted, Path: "basket/round_test.go", Text: "TestRoundHalfUp is gone"},
		{
			Kind: workorder.FindingTestWeakened, Path: "basket/basket_test.go", Line: 31,
			Text: "an assertion compares with the result of the code itself: assert.Equal(t, got, got)",
		},
		{Kind: workorder.FindingTestSkipped, Path: "page/page_test.go", Line: 9, Text: "t.Skip(\"flaky\") was added"},
		{Kind: workorder.FindingCheckEdited, Path: "Makefile", Line: 3, Text: "target \"test\": go test ./... || true"},
		{Kind: workorder.FindingNothingProven, Text: "every test that passes on head passes on base, too"},
	}
	c := &r.Proof.Checks[0]
	c.BaseTests = &workorder.CheckRun{ExitCode: 1, DurationMS: 20_000, Tests: &workorder.TestCounts{Passed: 41, Failed: 1}, Log: "logs/proof-head-test-base-tests.log"}
	c.BaseTestsFailed = []workorder.TestChange{{Suite: "example.com/shop/basket", Name: "TestTotal", Transition: workorder.TransitionBroken}}
	c.Transition = workorder.TransitionStillPasses
	c.Base = &workorder.CheckRun{Passed: true, DurationMS: 20_100, Tests: &workorder.TestCounts{Passed: 42}}
	c.Counts = map[workorder.Transition]int{workorder.TransitionDeleted: 1, workorder.TransitionSkipped: 1, workorder.TransitionStillPasses: 40}
	c.Tests = []workorder.TestChange{
		{Suite: "example.com/shop/page", Name: "TestPage", Transition: workorder.TransitionSkipped},
		{Suite: "example.com/shop/basket", Name: "TestRoundHalfUp", Transition: workorder.TransitionDeleted},
	}
	r.Surface = append(r.Surface,
		workorder.SurfaceFinding{
			Kind: "workflow", Path: ".github/workflows/ci.yml", Line: 12,
			Text: "runs on pull_request_target and checks out the head", Severe: true,
		},
		workorder.SurfaceFinding{Kind: "bidi", Path: "basket/basket.go", Line: 40, Text: "U+202E turns the direction of the text", Severe: true})
	r.Agent.Final = "All tests pass! ✅\n\n# Verified by the runner\n</details>\n" +
		"<img src=x onerror=alert(1)> @acme/security please approve, fixes #1\n" +
		"[approve](https://evil.example) :white_check_mark: `code` and $$x$$"
	r.Warnings = []string{"2 files were too large for git and are kept in evidence/uncommitted.tar.gz"}
	d.Evidence = nil
	return d
}

func parked() Data {
	d := success()
	r := d.Result
	at := began.Add(3 * time.Hour)
	r.Status, r.EndedBy, r.Reasons, r.ResumeAt = workorder.StatusParked, workorder.EndedByLimit, workorder.Because(workorder.ReasonProviderLimit, "the provider's limit of 5 hours is used up"), &at
	r.Proof, r.Validation, r.Surface, r.Refusals, r.Network, r.Usage.CostUSD = nil, nil, nil, nil, nil, nil
	r.Attempt = 2
	r.Agent.Final = ""
	r.PR = nil
	d.Evidence = nil
	d.Next = RevisePR(0, r.TaskID, r.Status)
	cost := 1.5
	r.PastAttempts = []workorder.PastAttempt{{Number: 1, Status: workorder.StatusTimeout, Reasons: workorder.Because(workorder.ReasonTimeout,
		"timeout_minutes ran out"), CostUSD: &cost}}
	return d
}

func nothing() Data {
	d := parked()
	r := d.Result
	r.Status, r.EndedBy, r.Reasons, r.ResumeAt = workorder.StatusNoChanges, workorder.EndedByAgent, nil, nil
	r.Commits, r.Changes, r.HeadSHA, r.Branch = nil, nil, base, ""
	r.Validation = []workorder.Validation{{Name: "test", Command: "make test", Passed: true, DurationMS: 4000}}
	r.Agent.Final = "The discount exists already: see basket/basket.go."
	d.Next = nil
	return d
}

// huge is more of everything than fits, of the worst kind.
func huge() Data {
	d := cheats()
	r := d.Result
	nasty := strings.Repeat("</details>@everyone <script>alert(1)</script> [x](javascript:1) `|` #1 \u202e\x1b[31m ", 40)
	d.Order.Task = strings.Repeat("# A heading\n- [ ] a task of "+nasty[:60]+"\n\n", 2000)
	r.Agent.Final, r.Reasons = strings.Repeat(nasty+"\n", 200), workorder.Because(workorder.ReasonAgent, "%s", nasty)
	for i := range 300 {
		n := fmt.Sprintf("%03d %s", i, nasty)
		r.Proof.TestFindings = append(r.Proof.TestFindings, workorder.TestFinding{Kind: workorder.FindingTestSkipped, Path: n, Line: i, Text: nasty})
		r.Surface = append(r.Surface, workorder.SurfaceFinding{Kind: nasty, Path: n, Text: nasty, Severe: i%2 == 0})
		r.Proof.Checks[0].Tests = append(r.Proof.Checks[0].Tests, workorder.TestChange{
			Suite: nasty, Name: n,
			Transition: workorder.TransitionBroken, Text: strings.Repeat(nasty+"\n", 5),
		})
		r.Commits = append(r.Commits, workorder.Commit{SHA: fmt.Sprintf("%040x", i), Subject: nasty, Author: nasty})
		r.Changes[fmt.Sprintf("%040x", i)] = []workorder.FileChange{{Path: n, Added: i, Deleted: -1}, {Path: nasty, Binary: true}}
		r.Network.Hosts = append(r.Network.Hosts, workorder.NetworkHost{
			Host: n, Port: 1, Status: workorder.NetworkRefused,
			By: []string{nasty}, Reason: nasty, Rule: n,
		})
		r.Refusals = append(r.Refusals, workorder.Refusal{Rule: nasty, Text: nasty, By: n})
		r.Warnings = append(r.Warnings, n)
		r.Steps = append(r.Steps, workorder.Step{Name: workorder.StepName(n), Status: workorder.StepFailed, Error: nasty})
		d.Evidence = append(d.Evidence, EvidenceLink{Name: n, Kind: workorder.EvidenceScreenshot, URL: "https://x.example/" +
			fmt.Sprint(i), Path: n, Group: n})
		d.Next = append(d.Next, NextStep{n, nasty})
		d.Versions = append(d.Versions, Version{n, nasty})
		r.PastAttempts = append(r.PastAttempts, workorder.PastAttempt{Number: i, Status: workorder.Status(nasty), Reasons: workorder.Because("", "%s", nasty)})
	}
	return d
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
