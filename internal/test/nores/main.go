// Command nores is an OCI runtime for tests: runc, asked for no more capabilities than this machine can
// give. An engine asks for all of them for a privileged container, and runc refuses to start one where the
// machine's own bounding set lacks a single one, as that of a virtual machine may.
//
// It edits the documents that name capabilities (config.json of --bundle, the file of --process) and becomes runc.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// capabilities by their numbers (capability.h).
var capabilities = []string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "LINUX_IMMUTABLE",
	"NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT",
	"SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE",
	"AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ",
	"PERFMON", "BPF", "CHECKPOINT_RESTORE",
}

func main() {
	panic(run(os.Args[1:])) // it comes back with an error alone; standard error is the engine's log
}

func run(args []string) error {
	has, err := bounding()
	if err != nil {
		return err
	}
	if slices.Contains(args, "create") || slices.Contains(args, "run") {
		if err := strip(filepath.Join(value(args, "bundle", "b", "."), "config.json"), "process", has); err != nil {
			return err
		}
	}
	if process := value(args, "process", "p", ""); process != "" && slices.Contains(args, "exec") {
		if err := strip(process, "", has); err != nil {
			return err
		}
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		err = syscall.Exec(filepath.Join(dir, "runc"), append([]string{"runc"}, args...), os.Environ())
	}
	return fmt.Errorf("become runc: %w", err)
}

// value is that of a flag, in any of the forms that runc reads.
func value(args []string, long, short, def string) string {
	for i, a := range args {
		for _, name := range []string{"--" + long, "-" + long, "-" + short} {
			if v, ok := strings.CutPrefix(a, name+"="); ok {
				return v
			}
			if a == name && i+1 < len(args) {
				return args[i+1]
			}
		}
	}
	return def
}

// bounding is what this machine can give.
func bounding() (func(string) bool, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(b), "\nCapBnd:")
	line, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil {
		return nil, fmt.Errorf("read the bounding set: %w", err)
	}
	return func(name string) bool {
		i := slices.Index(capabilities, strings.TrimPrefix(name, "CAP_"))
		return i < 0 || set&(1<<i) != 0
	}, nil
}

// strip leaves out of a document's process what the machine lacks.
func strip(file, key string, has func(string) bool) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // a limit of 64 bits is no float
	var doc map[string]any
	if err := d.Decode(&doc); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	process := doc
	if key != "" {
		process, _ = doc[key].(map[string]any)
	}
	sets, _ := process["capabilities"].(map[string]any)
	for name, list := range sets {
		names, _ := list.([]any)
		sets[name] = slices.DeleteFunc(names, func(n any) bool {
			s, ok := n.(string)
			return ok && !has(s)
		})
	}
	if b, err = json.Marshal(doc); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
}
