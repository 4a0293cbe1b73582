package tools

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// programs answer as apt-get and dpkg-query do, for an image that has jq. apt-get notes what it was called with.
var programs = map[string]string{
	"apt-get":    `echo "$*" >>"$CALLS"; for p; do last=$p; done; [ "$last" != none ] || { echo "E: Unable to locate package none" >&2; exit 100; }`,
	"dpkg-query": `shift 3; bad=0; for p; do case $p in jq) echo installed ;; removed) echo config-files ;; *) bad=1 ;; esac; done; exit $bad`,
}

func TestInstall(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		packages []string
		calls    []string // the first word of each
		fails    bool
	}{
		"there":           {packages: []string{"jq"}},
		"one is not":      {packages: []string{"jq", "make"}, calls: []string{"update", "install", "install"}},
		"was removed":     {packages: []string{"removed"}, calls: []string{"update", "install", "install"}},
		"of some version": {packages: []string{"jq=1.7"}, calls: []string{"update", "install", "install"}},
		"nowhere":         {packages: []string{"none"}, calls: []string{"update", "install", "install"}, fails: true},
		"to be removed":   {packages: []string{"make", "jq-"}, fails: true},
		"no version":      {packages: []string{"jq=1-"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for program, script := range programs {
				if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			noted := filepath.Join(t.TempDir(), "calls")
			m := &Apt{Env: []string{"PATH=" + dir + ":/usr/bin:/bin", "CALLS=" + noted}}
			for range 2 { // lists are fetched once
				if err := m.Install(t.Context(), row.packages); (err != nil) != row.fails || len(row.calls) > 0 && row.fails && !strings.Contains(err.Error(), "Unable to locate") {
					t.Errorf("error %v", err)
				}
			}
			var calls []string
			b, _ := os.ReadFile(noted) // there is none without a call
			for line := range strings.Lines(string(b)) {
				first, _, _ := strings.Cut(strings.TrimSpace(line), " ")
				calls = append(calls, first)
			}
			if !slices.Equal(calls, row.calls) {
				t.Errorf("apt-get was called with %q, want %q", calls, row.calls)
			}
		})
	}
}
