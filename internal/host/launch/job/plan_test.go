package job

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestPlanText(t *testing.T) {
	t.Parallel()
	budget := 2.5
	full := &Job{
		LocalRepo: "/home/me/shop",
		Order: workorder.Order{
			TaskID: "T-A1B2C3D4", Project: "shop", Task: "x", Repo: "/home/me/shop", Branch: "main",
			TargetBranch: "agent/T-A1B2C3D4-x", BoxSpec: workorder.BoxSpec{Parts: []string{"claude-code", "browser"}, Isolation: "confined", Services: []workorder.Service{{Name: "redis", Image: "redis:7"}}, Supabase: true, Env: map[string]string{"B": "2"}, SecretNames: []string{"A_KEY", "OPENAI_API_KEY", "Z"}, SecretUses: map[string]workorder.SecretUse{"OPENAI_API_KEY": workorder.SecretForGateway, "Z": workorder.SecretForSetup}, Gateway: workorder.Gateway{RequestsPerMinute: 5, Routes: []workorder.ModelRoute{
				{API: workorder.APIAnthropic, BaseURL: "http://ollama:11434"}, {API: workorder.APIOpenAI, BaseURL: "https://api.openai.com", Keys: []string{"OPENAI_API_KEY"}},
			}}, Packages: []string{"jq"}, Tools: map[string]string{"node": "22", "go": ">=1.26 <2"}, Setup: []string{"make\nmake all"}, Network: workorder.NetworkPolicy{Mode: workorder.NetworkRestricted, Allow: []string{"example.com", "*.example.org"}, Learn: true, DNS: []string{"192.0.2.1"}}, Limits: workorder.Limits{MemoryBytes: 2 << 30, CPUs: 1.5, PIDs: 100}},

			Validate: []workorder.Check{{Name: "test", Run: "go test ./..."}}, Harness: workorder.Harness{Name: "claude-code"},
			MaxBudgetUSD: &budget, TimeoutMinutes: 1.5,
		},
	}
	bare := &Job{
		OutDir: "/out", Keep: true,
		Order: workorder.Order{TaskID: "T-00000000", Harness: workorder.Harness{Name: "command"}, TimeoutMinutes: 30, BoxSpec: workorder.BoxSpec{Image: "mine:1", Isolation: "privileged", OCIRuntime: "kata", Network: workorder.NetworkPolicy{Mode: workorder.NetworkFull}}},
	}
	for name, job := range map[string]*Job{"full": full, "bare": bare} {
		got := PlanText(job)
		file := filepath.Join("testdata", "plan-"+name+".txt")
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
