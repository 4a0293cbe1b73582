package pullrequest

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestWebPage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		repo, api, name, want string
	}{
		{"git@github.com:o/app.git", "", "", "https://github.com/o/app"},
		{"https://git.example.com/o/app.git", "", "", ""}, // it may be anything
		{"https://git.example.com/o/app.git", "https://git.example.com/api/v3", "", "https://git.example.com/o/app"},
		{"https://git.example.com/x/y/app.git", "https://ghe.example.com:8443/api/v3/", "o/app", "https://ghe.example.com:8443/o/app"},
		{"https://proxy.example.com/o/app.git", "https://api.github.com", "", "https://github.com/o/app"},
		{"/srv/app", "https://ghe.example.com/api/v3", "", ""},
	} {
		o := &workorder.Order{Repo: c.repo, PR: &workorder.PullRequest{APIURL: c.api, Repository: c.name}}
		got := ""
		if u := commitURL(o); u != nil {
			got = strings.TrimSuffix(u("1"), "/commit/1")
		}
		if got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// The body links what is on the forge, at the commit that holds it, and nothing else.
func TestBodyLinksEvidence(t *testing.T) {
	t.Parallel()
	o := &workorder.Order{Repo: "https://github.com/o/app", TaskID: "T-A1B2C3D4", Task: "x"}
	r := &workorder.Result{
		Status: workorder.StatusSuccess, EvidenceSHA: strings.Repeat("e", 40), EvidenceLeft: []string{"evidence/too large.png"},
		Proof: &workorder.Proof{Checks: []workorder.CheckProof{{
			Name: "test", Transition: workorder.TransitionStillPasses,
			Base: &workorder.CheckRun{Passed: true, Log: "logs/proof-base-test.log"}, Head: &workorder.CheckRun{
				Passed: true,
				Log:    "logs/proof-head-test.log",
			},
		}}},
		Evidence: []workorder.Evidence{
			{Name: "page", Path: "evidence/the page.png", Kind: workorder.EvidenceScreenshot},
			{Name: "large", Path: "evidence/too large.png", Kind: workorder.EvidenceScreenshot},
			{Name: "other", Path: "evidence/hang-1.txt", Kind: "hang"},
		},
	}
	body := Body(ReportInput{Order: o, Result: r})
	at := "https://github.com/o/app/blob/" + r.EvidenceSHA + "/"
	for _, want := range []string{
		at + "evidence/the%20page.png?raw=true", at + "logs/proof-base-test.log?raw=true",
		at + "logs/proof-head-test.log?raw=true",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the body lacks %s:\n%s", want, body)
		}
	}
	for _, never := range []string{"too%20large", "hang-1.txt?raw"} {
		if strings.Contains(body, never) {
			t.Errorf("the body links %s:\n%s", never, body)
		}
	}
	if r.EvidenceSHA = ""; strings.Contains(Body(ReportInput{Order: o, Result: r}), "/blob/") {
		t.Error("there is nothing to link")
	}
}
