package sandbox

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/wire"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Lifetime is how long a sandbox stays.
type Lifetime string

// The lifetimes of sandboxes.
const (
	// Named stays until Remove.
	Named Lifetime = "named"
	// Session ends with the program that made it.
	Session Lifetime = "session"
)

// NoLimit lifts a limit; a limit of 0 is the default.
const NoLimit = -1

// DefaultSilence is four signs of life.
const DefaultSilence = time.Minute

// Defaults of the limits.
const (
	DefaultMemoryBytes = 2 << 30
	DefaultCPUs        = 2
	DefaultPIDs        = 4096
)

// Limits are what all of a sandbox may use at a time.
type Limits struct {
	MemoryBytes int64   `json:"memory_bytes"`
	CPUs        float64 `json:"cpus"`
	PIDs        int64   `json:"pids"` // processes and threads
}

// minMemory is the least memory with which the guest itself works, in bytes.
const minMemory = 32 << 20

// Spec is what a sandbox is made of.
type Spec struct {
	// Name is letters a–z, digits, - and _, with a letter or digit first, 63 at most. A Session without one gets one.
	Name string `json:"name"`
	// Runtime is Auto if empty; a Spec that was completed has the one that was chosen.
	Runtime Kind `json:"runtime,omitempty"`
	// Image is one that the engine has; a jail has none.
	Image string `json:"image,omitempty"`
	// Root is a folder of this machine whose programs a jail has in place of this machine's: its usr, bin, sbin, lib and lib64, and of its etc what is the same for everybody.
	Root string `json:"root,omitempty"`
	// User runs commands: a name, uid or uid:gid of the image; "" means the image's user, or with a folder of this machine that can be written to, who calls
	// unless that is root.
	User string `json:"user,omitempty"`
	// Dir is where commands begin, an absolute path; "" means the image's.
	Dir string `json:"dir,omitempty"`
	// OwnDir makes Dir if it is not there, and gives it to User.
	OwnDir bool `json:"own_dir,omitempty"`
	// Env is NAME=value, added to the image's for each command.
	Env []string `json:"env,omitempty"`
	// ImageEnv are variables like those of Env, in whose values $NAME and ${NAME} stand for the image's variables and $$ for a dollar.
	ImageEnv map[string]string `json:"image_env,omitempty"`
	// Network is NetworkFull if empty.
	Network Network `json:"network"`
	// Allow are the rules of NetworkRestricted: a host, *.domain or address, with :port for another than 80 and 443.
	Allow []string `json:"allow,omitempty"`
	// Title is for people who choose.
	Title string `json:"title,omitempty"`
	// Repo is a repository whose Ref is checked out at /workspace: a path of this machine, whose branches and tags are copied, or in a box a URL, too.
	Repo string `json:"repo,omitempty"`
	// Worktree is a repository of this machine of which a real worktree is at /workspace, on a branch of its own, sandbox-NAME: its files are the user's to look at.
	Worktree string `json:"worktree,omitempty"`
	// Ref is a branch, tag or commit of Repo or Worktree; "" means its default branch, or what is checked out.
	Ref string `json:"ref,omitempty"`
	// Box is what else a box has: services, packages, tools, setup commands, variables, the gateway to models. What this Spec itself names
	// (image, network mode, limits) is left out of it. nil means nothing of it.
	Box *workorder.Spec `json:"box,omitempty"`
	// Project names what Box was made of, for Options.Secrets.
	Project string `json:"project,omitempty"`
	Limits  Limits `json:"limits"`
	// Mounts are folders and files of this machine in the sandbox.
	Mounts []Mount `json:"mounts,omitempty"`
	// OCIRuntime is one that the engine has; "" means its default.
	OCIRuntime string `json:"oci_runtime,omitempty"`
	// Leases lets Sandbox.Lease make leases, whose commands run as User, which is then 1000:1000 if empty and never root.
	Leases bool `json:"leases,omitempty"`
	// Lifetime is Named if empty.
	Lifetime Lifetime `json:"lifetime"`
	// Silence ends a Session whose program has given no sign of life for so long; 0 means DefaultSilence. With NoLimit it does not end with the program, but by Idle and Life: others
	// find it by Name.
	Silence time.Duration `json:"silence,omitempty"`
	// Idle ends the sandbox when nobody has used it for so long, and keeps its files; 0 never does.
	Idle time.Duration `json:"idle,omitempty"`
	// Life ends the sandbox after that time, likewise; 0 never does.
	Life time.Duration `json:"life,omitempty"`
}

// wishes are the capabilities that the spec needs, as it was before defaults were filled in: a default limit that cannot be held is none.
func (s Spec) wishes() []Capability {
	var all []Capability
	want := func(c Capability, when bool) {
		if when {
			all = append(all, c)
		}
	}
	want(CapAnyImage, s.Image != "")
	want(CapAnyRoot, s.Root != "")
	want(CapUsers, s.User != "")
	if c, ok := networks[cmp.Or(s.Network, NetworkFull)]; ok {
		all = append(all, c)
	}
	want(CapRepository, s.Repo != "" && s.local())
	want(CapRemote, s.Repo != "" && !s.local())
	want(CapServices, s.Box != nil)
	want(CapMounts, len(s.Mounts) > 0 || s.Worktree != "")
	want(CapOCIRuntime, s.OCIRuntime != "")
	want(CapMemory, s.Limits.MemoryBytes > 0)
	want(CapCPUs, s.Limits.CPUs > 0)
	want(CapPIDs, s.Limits.PIDs > 0)
	want(CapLeases, s.Leases)
	return all
}

// Check returns all that is wrong with the spec, as Create does, and makes nothing.
func (s Spec) Check() error {
	_, err := s.complete()
	return err
}

// complete returns the spec with defaults, or all that is wrong with it.
func (s Spec) complete() (Spec, error) {
	if s.Lifetime == "" {
		s.Lifetime = Named
	}
	if s.Name == "" && s.Lifetime == Session {
		s.Name = "session-" + strings.ToLower(rand.Text())
	}
	if s.Network == "" {
		s.Network = NetworkFull
	}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	errs = append(errs, checkName("sandbox", s.Name))
	if s.Runtime != Auto && !slices.Contains(kinds, s.Runtime) {
		wrong("runtime %q: use %s", s.Runtime, strings.Join(kindNames(), ", "))
	}
	if s.Image == "" && s.Runtime == KindContainer && !s.wantsBox() {
		wrong("there is no image")
	}
	errs = append(errs, s.Network.check())
	if len(s.Allow) > 0 && s.Network != NetworkRestricted {
		wrong("rules for network %s: only %s has rules", s.Network, NetworkRestricted)
	}
	if s.Lifetime != Named && s.Lifetime != Session {
		wrong("lifetime %q: use %s or %s", s.Lifetime, Named, Session)
	}
	errs = append(errs, s.checkTimes())
	errs = append(errs, s.completeFolders())
	if s.User == "" {
		s.User = s.writer(os.Getuid(), os.Getgid())
	}
	errs = append(errs, s.completeLeases())
	if s.Silence == 0 && s.Lifetime == Session {
		s.Silence = DefaultSilence
	}
	if err := (wire.Command{Argv: []string{"x"}, Env: s.Env}).Check(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, s.Limits.complete(), checkMounts(s.Mounts))
	if err := errors.Join(errs...); err != nil {
		return Spec{}, fmt.Errorf("sandbox %s is %w: %w", s.Name, ErrSpec, err)
	}
	s.Mounts = resolved(s.Mounts)
	return s, nil
}

// writer is the user of commands that write to directories of this machine, for a program of the user uid: what they write belongs to that user, and for root to the
// owner of the first such directory, as in a jail. It is "" where the image's user is as good.
func (s Spec) writer(uid, gid int) string {
	i := slices.IndexFunc(s.Mounts, func(m Mount) bool { return !m.ReadOnly })
	switch {
	case uid > 0 && (i >= 0 || s.Worktree != ""):
		return fmt.Sprintf("%d:%d", uid, gid)
	case uid != 0 || i < 0:
		return ""
	}
	st, err := os.Stat(s.Mounts[i].Host)
	if err != nil {
		return "" // what is wrong with it is found later
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || sys.Uid == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%d", sys.Uid, cmp.Or(sys.Gid, sys.Uid)) // no group of root's
}

// completeFolders fills in where commands begin, or returns what is wrong with it and with what is there.
func (s *Spec) completeFolders() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.Worktree != "" && (s.Repo != "" || s.Lifetime != Named) {
		wrong("a worktree is for a named sandbox without a clone")
	}
	if s.Ref != "" && s.Repo == "" && s.Worktree == "" {
		wrong("branch %s without a repository", s.Ref)
	}
	if s.OwnDir && s.Dir == "" {
		wrong("there is no folder for its user to own")
	}
	if s.Dir != "" && !strings.HasPrefix(s.Dir, "/") {
		wrong("folder %q: use an absolute path", s.Dir)
	}
	if s.Root != "" && !filepath.IsAbs(s.Root) {
		wrong("root folder %q: use an absolute path", s.Root)
	}
	if s.Worktree != "" && s.Dir == "" {
		s.Dir = CloneDir
	}
	if s.Repo != "" && s.Runtime != KindBox && s.Box == nil && s.Dir == "" {
		s.Dir, s.OwnDir = CloneDir, true
	}
	return errors.Join(errs...)
}

// checkTimes returns what is wrong with when it ends.
func (s Spec) checkTimes() error {
	switch {
	case s.Idle < 0 || s.Life < 0 || s.Silence < 0 && s.Silence != NoLimit:
		return fmt.Errorf("a time of less than nothing: idle %s, life %s, silence %s", s.Idle, s.Life, s.Silence)
	case s.Silence == NoLimit && s.Idle == 0 && s.Life == 0:
		return errors.New("a session that nothing ends")
	}
	return nil
}

// completeLeases fills in what leases need, or returns what is wrong with it.
func (s *Spec) completeLeases() error {
	if !s.Leases {
		return nil
	}
	s.User, s.Dir = cmp.Or(s.User, leaseUser), cmp.Or(s.Dir, leaseDir)
	if uid, gid, ok := strings.Cut(s.User, ":"); !ok || !isID(uid) || !isID(gid) {
		return fmt.Errorf("user %q of leases: use uid:gid of another than root", s.User)
	}
	return nil
}

// hold lifts the limits that a kind of sandbox cannot hold.
func (l *Limits) hold(has []Capability) {
	if !slices.Contains(has, CapMemory) {
		l.MemoryBytes = NoLimit
	}
	if !slices.Contains(has, CapCPUs) {
		l.CPUs = NoLimit
	}
	if !slices.Contains(has, CapPIDs) {
		l.PIDs = NoLimit
	}
}

// Check returns all that is wrong with limits.
func (l Limits) Check() error { return l.complete() }

// complete fills in defaults, or returns all that is wrong.
func (l *Limits) complete() error {
	var errs []error
	switch {
	case l.MemoryBytes == 0:
		l.MemoryBytes = DefaultMemoryBytes
	case l.MemoryBytes != NoLimit && l.MemoryBytes < minMemory:
		errs = append(errs, fmt.Errorf("memory of %d bytes: use at least %d", l.MemoryBytes, minMemory))
	}
	switch {
	case l.CPUs == 0:
		l.CPUs = DefaultCPUs
	case l.CPUs != NoLimit && (l.CPUs < 0.01 || l.CPUs > maxCPUs || math.IsNaN(l.CPUs)):
		errs = append(errs, fmt.Errorf("%g CPUs: use 0.01 to %d", l.CPUs, maxCPUs))
	}
	switch {
	case l.PIDs == 0:
		l.PIDs = DefaultPIDs
	case l.PIDs != NoLimit && l.PIDs < minPIDs:
		errs = append(errs, fmt.Errorf("%d processes: use at least %d", l.PIDs, minPIDs))
	}
	return errors.Join(errs...)
}

// maxCPUs is more than any machine has: an engine takes a number in which some more have no place for no limit.
const maxCPUs = 1 << 20

// minPIDs is the least number of processes and threads: the guest has some 30 itself, and 10 for each command.
const minPIDs = 64

// limit is what an engine takes for one: 0 for none.
func limit(n int64) int64 { return max(n, 0) }

// Of leases: the first user of most distributions, and the folder that each has for itself.
const (
	leaseUser = "1000:1000"
	leaseDir  = "/workspace"
)

// isID reports whether a text is the number of a user or group other than root.
func isID(s string) bool {
	n, err := strconv.ParseUint(s, 10, 31)
	return err == nil && n > 0
}
