package doctor_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/doctor"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// prober is an engine whose throw-away boxes answer as a test says.
type prober struct {
	*runtimetest.Fake
	answer func(spec runtime.ContainerSpec, script string) (string, error)
}

func (p *prober) Probe(_ context.Context, spec runtime.ContainerSpec, argv []string) (string, error) {
	return p.answer(spec, strings.Join(argv, " "))
}

func TestHolding(t *testing.T) {
	t.Parallel()
	works := func(_ runtime.ContainerSpec, script string) (string, error) {
		if strings.Contains(script, "nft -f") {
			return "in-force\n", nil
		}
		if strings.Contains(script, "image.json") {
			return `{"contents":{"claude-code":"2.1.329 (Claude Code)","codex":"codex-cli 0.169.0","opencode":"1.18.18"}}`, nil
		}
		return "CapEff:\t1\n", nil
	}
	for name, c := range map[string]struct {
		runtimes []string
		answer   func(runtime.ContainerSpec, string) (string, error)
		want     map[string]string // name of a check -> how it begins
	}{
		"all": {[]string{"kata-runtime", "runc", "runsc", "sysbox-runc"}, works, map[string]string{
			"harnesses": "ok claude-code 2.1.329, codex 0.169.0, opencode 1.18.18, command", "network policy": "ok nftables works", "oci runtime kata": "ok selectable: --oci-runtime kata-runtime", "oci runtime runsc": "ok selectable",
			"oci runtime sysbox-runc": "ok selectable: --oci-runtime sysbox-runc ", "isolation confined": "ok works", "isolation privileged": "ok works",
		}},
		"little": {[]string{"runc", "runsc"}, func(spec runtime.ContainerSpec, script string) (string, error) {
			switch {
			case spec.OCIRuntime != "":
				return "", errors.New("no such program")
			case strings.Contains(script, "nft -f"):
				return "", errors.New("exit status 1: Operation not supported")
			case spec.Isolation == workorder.IsolationPrivileged:
				return "", errors.New("unable to apply caps")
			case strings.Contains(script, "image.json"):
				return `{"contents":{"claude-code":"2.1.329 (Claude Code)"},"missing":{"codex":"the registry has none"}}`, nil
			}
			return works(spec, script)
		}, map[string]string{
			"harnesses": "warn claude-code 2.1.329, command; added to the image when needed: opencode; without codex", "network policy": "fail a confined sandbox cannot have its firewall: exit status 1", "oci runtime kata": "ok", "oci runtime runsc": "warn the engine knows runsc",
			"isolation confined": "ok works", "isolation privileged": "warn unable",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := runtimetest.NewFake(nil)
			fake.Details.OSType, fake.Details.Runtimes = "linux", c.runtimes
			d := doctor.Doctor{
				Engine: &prober{fake, c.answer}, StateDir: t.TempDir(),
				Images: func(context.Context) ([]string, error) { return []string{"box"}, nil },
			}
			got := map[string]string{}
			for _, check := range d.Run(t.Context()) {
				got[check.Name] = string(check.Status) + " " + check.Message
				if check.Status != doctor.OK && check.Hint == "" {
					t.Errorf("%s: no hint", check.Name)
				}
			}
			for name, want := range c.want {
				if !strings.HasPrefix(got[name], want) {
					t.Errorf("%s: %q, want %q", name, got[name], want)
				}
			}
		})
	}
}

// Doctor asks a kernel for the same things as boxes: internal/guest/egress writes these files.
func TestFirewallIsThatOfBoxes(t *testing.T) {
	t.Parallel()
	var want []byte
	for _, f := range []string{"restricted.nft", "restricted-sealed.nft"} {
		b, err := os.ReadFile("../../guest/egress/testdata/" + f)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, b...)
	}
	got, err := os.ReadFile("firewall.nft")
	if err != nil || string(got) != string(want) {
		t.Error("firewall.nft is not what a restricted network has: make it of the two files of testdata")
	}
}
