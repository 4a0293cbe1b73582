package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The certificate of a local repository is alone in its folder: git takes all that lie there.
func TestRemoteIsPinned(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := gitAuth(&workorder.Envelope{
		Order: workorder.Order{CloneURL: "https://host.docker.internal:1/repo.git"},
		Git:   &workorder.GitCredential{Token: "t", KnownHosts: "h", CA: "the certificate"},
	}, dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(a.CAFile)
	if err != nil || string(b) != "the certificate" {
		t.Errorf("%q %v", b, err)
	}
	if all, err := os.ReadDir(filepath.Dir(a.CAFile)); err != nil || len(all) != 1 {
		t.Errorf("%v %v", all, err)
	}
}
