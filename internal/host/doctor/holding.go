package doctor

import (
	"context"
	_ "embed"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// firewall are the rules of a restricted network as a box has them; a test checks that both are equal.
//
//go:embed firewall.nft
var firewall string

// network checks that a confined box can have the firewall of the network policy.
func (d *Doctor) network(ctx context.Context, p runtime.Prober, info runtime.Info, image string) Check {
	out, err := d.probe(ctx, p, info, image, workorder.IsolationConfined, "", []string{"/bin/sh", "-c", "nft -f - <<'END' && echo in-force\n" + firewall + "END\n"})
	c := Check{Name: "network policy", Status: OK, Message: "nftables works in a confined sandbox: network can be full, restricted or none"}
	if err == nil && strings.Contains(out, "in-force") {
		return c
	}
	c.Status, c.Message = Fail, "a confined sandbox cannot have its firewall: "+strings.TrimSpace(out)
	if err != nil {
		c.Message = "a confined sandbox cannot have its firewall: " + err.Error()
	}
	c.Hint = "the engine's kernel needs nf_tables (modules nft_redir, nft_masq, nft_fib_inet, nft_reject_inet, nft_log, nft_ct), and an image of one's own the program nft"
	return c
}

// ground checks that a confined box can divide its control groups and cover the machine's kernel settings.
func (d *Doctor) ground(ctx context.Context, p runtime.Prober, info runtime.Info, image string) Check {
	out, err := d.probe(ctx, p, info, image, workorder.IsolationConfined, "", []string{"/bin/sh", "-c", "cat /proc/filesystems; exec " + workorder.EntrypointIn + " ground"})
	c := Check{Name: "limits and settings", Status: OK, Message: "the agent has limits apart from boot's; the machine's kernel settings are read-only in a confined sandbox"}
	known, out := mountable(out)
	c.Message += "; root in it, which only the sandbox's own programs are, could mount " + strings.Join(append(known, "a /proc of its own"), ", ")
	if !info.Seccomp {
		c.Message += ", and the engine filters no system calls"
	}
	if err != nil {
		c.Status, c.Message = Warn, "a confined sandbox is held less well than it should be: "+strings.TrimSpace(out+" "+err.Error())
		c.Hint = "the kernel needs cgroup namespaces (4.6), and the engine has to mount /sys/fs/cgroup; runs go on, each with this as a warning"
	}
	return c
}

// reaching are kernel file systems that change or show the whole machine.
var reaching = []string{"binfmt_misc", "bpf", "configfs", "debugfs", "efivarfs", "pstore", "securityfs", "tracefs"}

// mountable returns those of reaching that /proc/filesystems lists, and the output that follows it.
func mountable(out string) (known []string, rest string) {
	for line := range strings.Lines(out) {
		flag, name, ok := strings.Cut(strings.TrimRight(line, "\n"), "\t")
		switch {
		case !ok || flag != "" && flag != "nodev":
			rest += line
		case slices.Contains(reaching, name):
			known = append(known, name)
		}
	}
	return known, rest
}

// strong are the OCI runtimes that isolate a box better than a shared kernel, by the
// names that engines give them.
var strong = []struct{ name, what string }{
	{"sysbox-runc", "a user namespace for the whole sandbox"},
	{"kata", "a virtual machine for the sandbox"},
	{"runsc", "gVisor: a kernel of its own in user space"},
}

// runtimes reports the engine's other OCI runtimes, and whether a box starts in each.
func (d *Doctor) runtimes(ctx context.Context, p runtime.Prober, info runtime.Info, image string, add func(Check)) {
	for _, s := range strong {
		i := slices.IndexFunc(info.Runtimes, func(r string) bool {
			return r == s.name || strings.HasPrefix(r, s.name+"-") || strings.HasPrefix(r, "io.containerd."+s.name+".")
		})
		if i < 0 {
			add(Check{"oci runtime " + s.name, OK, "not there: the engine does not know it (" + s.what + ")", ""})
			continue
		}
		name := info.Runtimes[i]
		c := Check{"oci runtime " + s.name, OK, "selectable: --oci-runtime " + name + " (" + s.what + ")", ""}
		if _, err := d.probe(ctx, p, info, image, workorder.IsolationConfined, name, []string{"/bin/true"}); err != nil {
			c.Status, c.Message, c.Hint = Warn, "the engine knows "+name+", and a sandbox does not start in it: "+err.Error(), "mend the runtime's installation, or leave --oci-runtime out"
		}
		add(c)
	}
}
