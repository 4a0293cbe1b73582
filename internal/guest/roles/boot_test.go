package roles

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	mask := secrets(&workorder.Envelope{
		Secrets: map[string]string{"KEY": "value-of-the-key"},
		Git: &workorder.GitCredential{
			Token:  "value-of-the-token",
			SSHKey: "-----BEGIN KEY-----\nbGluZSBvZiB0aGUga2V5Cg\n-----END KEY-----\n",
		},
	})
	got := mask.String("a value-of-the-key b value-of-the-token c bGluZSBvZiB0aGUga2V5Cg")
	if want := "a [redacted:KEY] b [redacted:git-token] c [redacted:ssh-key]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
