package sandbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
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

	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/wire"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Lifetime says when a sandbox ends.
type Lifetime string

// Lifetimes.
const (
	// LifetimeNamed sandboxes stay until Remove.
	LifetimeNamed Lifetime = "named"
	// LifetimeEphemeral sandboxes end with the program that created them.
	LifetimeEphemeral Lifetime = "session"
)

// NoLimit lifts a limit; a limit of 0 means the default.
const NoLimit = -1

// DefaultOwnerTimeout is the default of Spec.OwnerTimeout: four keep-alive intervals.
const DefaultOwnerTimeout = time.Minute

// Default limits.
const (
	DefaultMemoryBytes = 2 << 30
	DefaultCPUs        = 2
	DefaultPIDs        = 4096
)

// Limits apply to all processes of a sandbox together. 0 means the default, NoLimit no limit.
type Limits struct {
	MemoryBytes int64   `json:"memory_bytes"`
	CPUs        float64 `json:"cpus"`
	PIDs        int64   `json:"pids"` // processes and threads
}

// minMemory is the minimum for the guest program, in bytes.
const minMemory = 32 << 20

// Spec describes a sandbox.
type Spec struct {
	// Name has at most 63 letters a–z, digits, - and _, with a letter or digit first. An empty name of a
	// LifetimeEphemeral sandbox is replaced by a random one.
	Name string `json:"name"`
	// Runtime defaults to RuntimeAuto. In the spec of an existing sandbox it is the chosen runtime.
	Runtime Runtime `json:"runtime,omitempty"`
	// Image is a reference of an image on the engine. A jail has none.
	Image string `json:"image,omitempty"`
	// Root is a directory of the host from which a jail takes its programs instead of the host's own: usr, bin, sbin,
	// lib and lib64, and the user-independent part of etc.
	Root string `json:"root,omitempty"`
	// User runs commands: a name, uid or uid:gid of the image. "" means the image's user or, with a writable host
	// directory, the caller unless that is root.
	User string `json:"user,omitempty"`
	// Dir is the working directory of commands, an absolute path; "" means the image's.
	Dir string `json:"dir,omitempty"`
	// CreateDir creates Dir if it is missing and makes User its owner.
	CreateDir bool `json:"create_dir,omitempty"`
	// Env has NAME=value entries, added to the image's environment for each command.
	Env []string `json:"env,omitempty"`
	// ImageEnv has variables like Env. In their values $NAME and ${NAME} are the image's variables and $$ is a dollar sign.
	ImageEnv map[string]string `json:"image_env,omitempty"`
	// Network defaults to NetworkFull.
	Network NetworkMode `json:"network"`
	// Allow has the rules of NetworkRestricted: a host, *.domain or address, with :port for ports other than 80 and 443.
	Allow []string `json:"allow,omitempty"`
	Title string   `json:"title,omitempty"` // a short description for people
	// Author is who commits in the clone or worktree of a repository, as Name <email>; "" means the repository's git identity.
	Author string `json:"author,omitempty"`
	// Repo is a repository whose Ref is checked out at /workspace: a path on the host, whose branches and tags are
	// copied, or for a box also a URL.
	Repo string `json:"repo,omitempty"`
	// Worktree is a repository on the host, of which a linked worktree is mounted at /workspace, on the branch
	// sandbox-NAME. The user can read its files on the host.
	Worktree string `json:"worktree,omitempty"`
	// Ref is a branch, tag or commit of Repo or Worktree; "" means the default branch, or the checked out one.
	Ref string `json:"ref,omitempty"`
	// Repos are repositories of which each is cloned to /workspace/NAME, in place of Repo.
	Repos []NamedRepo `json:"repos,omitempty"`
	// Box configures a box: services, packages, tools, setup commands, variables, the gateway to models. nil means none.
	Box *BoxSpec `json:"box,omitempty"`
	// Project is the name of the project file from which Box was made, for Options.Secrets.
	Project    string  `json:"project,omitempty"`
	Limits     Limits  `json:"limits"`
	Mounts     []Mount `json:"mounts,omitempty"`      // directories and files of the host in the sandbox
	OCIRuntime string  `json:"oci_runtime,omitempty"` // an OCI runtime of the engine; "" means its default
	// Nested enables NewNested. Commands of nested sandboxes run as User, which defaults to 1000:1000 and must not be root.
	Nested bool `json:"leases,omitempty"`
	// Lifetime defaults to LifetimeNamed.
	Lifetime Lifetime `json:"lifetime"`
	// OwnerTimeout ends a LifetimeEphemeral sandbox whose program has sent no keep-alive signal for so long; 0 means DefaultOwnerTimeout.
	// With NoLimit the sandbox outlives the program until IdleTimeout or TTL, and other programs find it by Name.
	OwnerTimeout time.Duration `json:"-"`
	// IdleTimeout stops the sandbox after so long without use and keeps its files; 0 means never.
	IdleTimeout time.Duration `json:"-"`
	// TTL stops the sandbox after so long and keeps its files; 0 means never.
	TTL time.Duration `json:"-"`
}

type plainSpec Spec

// specJSON is a Spec in JSON, with durations as strings such as "30m".
type specJSON struct {
	plainSpec
	OwnerTimeout string `json:"owner_timeout,omitempty"`
	IdleTimeout  string `json:"idle_timeout,omitempty"`
	TTL          string `json:"ttl,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (s Spec) MarshalJSON() ([]byte, error) {
	return json.Marshal(specJSON{plainSpec(s), durationText(s.OwnerTimeout), durationText(s.IdleTimeout), durationText(s.TTL)})
}

// UnmarshalJSON implements json.Unmarshaler. It also reads the names and nanoseconds of older versions' records and labels.
func (s *Spec) UnmarshalJSON(b []byte) error {
	var read struct {
		specJSON
		OwnDir  bool          `json:"own_dir"`
		Silence time.Duration `json:"silence"`
		Idle    time.Duration `json:"idle"`
		Life    time.Duration `json:"life"`
	}
	if err := json.Unmarshal(b, &read); err != nil {
		return err
	}
	*s = Spec(read.plainSpec)
	s.CreateDir = s.CreateDir || read.OwnDir
	for _, row := range []struct {
		to   *time.Duration
		text string
		old  time.Duration
	}{{&s.OwnerTimeout, read.OwnerTimeout, read.Silence}, {&s.IdleTimeout, read.IdleTimeout, read.Idle}, {&s.TTL, read.TTL, read.Life}} {
		*row.to = row.old
		if row.text != "" {
			d, err := time.ParseDuration(row.text)
			if err != nil {
				return err
			}
			*row.to = d
		}
	}
	return nil
}

// durationText returns a duration as users write it: "30m" instead of "30m0s"; "" for 0.
func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// required returns the capabilities that a spec without defaults requires. Default limits that a runtime cannot enforce are dropped.
func (s Spec) required() []Capability {
	var all []Capability
	want := func(c Capability, when bool) {
		if when {
			all = append(all, c)
		}
	}
	want(CapImage, s.Image != "")
	want(CapRootFS, s.Root != "")
	want(CapUser, s.User != "")
	if c, ok := networks[cmp.Or(s.Network, NetworkFull)]; s.proxied() {
		all = append(all, CapNetworkProxy)
	} else if ok {
		all = append(all, c)
	}
	want(CapRepository, s.Repo != "" && s.local() || len(s.Repos) > 0)
	want(CapRemoteRepository, s.Repo != "" && !s.local())
	want(CapServices, s.Box != nil)
	want(CapMounts, len(s.Mounts) > 0 || s.Worktree != "")
	want(CapOCIRuntime, s.OCIRuntime != "")
	want(CapMemory, s.Limits.MemoryBytes > 0)
	want(CapCPUs, s.Limits.CPUs > 0)
	want(CapPIDs, s.Limits.PIDs > 0)
	want(CapNested, s.Nested)
	return all
}

// author returns who commits in a repository's copy.
func (s Spec) author(ctx context.Context, repo string) (name, email string) {
	own, _ := workorder.ParseIdentity(s.Author) // zero for ""
	return localrepo.Identity(ctx, repo, own)
}

// proxied reports whether a proxy of this program is the sandbox's only network.
func (s Spec) proxied() bool {
	return s.Network == NetworkRestricted && s.Lifetime == LifetimeEphemeral && (s.Runtime == RuntimeContainer || s.Runtime == RuntimeJail)
}

// Check validates the spec as Create does. Its error is an ErrInvalidSpec with all mistakes.
func (s Spec) Check() error {
	_, err := s.complete()
	return err
}

// complete returns the spec with defaults, or an error with all mistakes.
func (s Spec) complete() (Spec, error) {
	s.Lifetime = cmp.Or(s.Lifetime, LifetimeNamed)
	if s.Name == "" && s.Lifetime == LifetimeEphemeral {
		s.Name = "session-" + strings.ToLower(rand.Text())
	}
	s.Network = cmp.Or(s.Network, NetworkFull)
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	errs = append(errs, checkName("sandbox", s.Name))
	if s.Runtime != RuntimeAuto && !slices.Contains(allRuntimes, s.Runtime) {
		wrong("runtime %q: use %s", s.Runtime, strings.Join(runtimeNames(), ", "))
	}
	if s.Image == "" && s.Runtime == RuntimeContainer && s.Box == nil {
		wrong("no image")
	}
	errs = append(errs, s.Network.check())
	for _, rule := range s.Allow {
		_, err := workorder.ParseAllowRule(rule)
		errs = append(errs, err)
	}
	if len(s.Allow) > 0 && s.Network != NetworkRestricted {
		wrong("allow rules with network %s: only %s has rules", s.Network, NetworkRestricted)
	}
	if s.Author != "" {
		_, err := workorder.ParseIdentity(s.Author)
		errs = append(errs, err)
	}
	if s.Lifetime != LifetimeNamed && s.Lifetime != LifetimeEphemeral {
		wrong("lifetime %q: use %s or %s", s.Lifetime, LifetimeNamed, LifetimeEphemeral)
	}
	errs = append(errs, s.checkTimes())
	errs = append(errs, s.completeDirs(), s.checkRepos())
	if s.User == "" {
		s.User = s.writer(os.Getuid(), os.Getgid())
	}
	errs = append(errs, s.completeLeases())
	if s.OwnerTimeout == 0 && s.Lifetime == LifetimeEphemeral {
		s.OwnerTimeout = DefaultOwnerTimeout
	}
	if err := (wire.Command{Argv: []string{"x"}, Env: s.Env}).Check(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, s.Limits.complete(), checkMounts(s.Mounts))
	if err := errors.Join(errs...); err != nil {
		return Spec{}, fmt.Errorf("sandbox %s: %w: %w", s.Name, ErrInvalidSpec, err)
	}
	s.Mounts = resolved(s.Mounts)
	return s, nil
}

// writer returns the user whose commands write to host directories, for a program of user uid. The files then belong to that user; for
// root to the owner of the first writable directory, as in a jail. It returns "" if the image's user fits.
func (s Spec) writer(uid, gid int) string {
	i := slices.IndexFunc(s.Mounts, func(m Mount) bool { return !m.ReadOnly })
	switch {
	case uid > 0 && (i >= 0 || s.Worktree != ""):
		return fmt.Sprintf("%d:%d", uid, gid)
	case uid != 0 || i < 0:
		return ""
	}
	st, err := os.Stat(s.Mounts[i].Source)
	if err != nil {
		return "" // the error is reported later
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || sys.Uid == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%d", sys.Uid, cmp.Or(sys.Gid, sys.Uid)) // never root's group
}

// completeDirs sets the default working directory and validates directories and the repository.
func (s *Spec) completeDirs() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.Worktree != "" && (s.Repo != "" || s.Lifetime != LifetimeNamed) {
		wrong("a worktree is for a named sandbox without a clone")
	}
	if s.Ref != "" && s.Repo == "" && s.Worktree == "" {
		wrong("branch %s without a repository", s.Ref)
	}
	if s.CreateDir && s.Dir == "" {
		wrong("create_dir needs a directory")
	}
	if s.Dir != "" && !strings.HasPrefix(s.Dir, "/") {
		wrong("directory %q: use an absolute path", s.Dir)
	}
	if s.Root != "" && !filepath.IsAbs(s.Root) {
		wrong("root directory %q: use an absolute path", s.Root)
	}
	if s.Worktree != "" && s.Dir == "" {
		s.Dir = CloneDir
	}
	if (s.Repo != "" || len(s.Repos) > 0) && s.Runtime != RuntimeBox && s.Box == nil && s.Dir == "" {
		s.Dir, s.CreateDir = CloneDir, true
	}
	return errors.Join(errs...)
}

func (s Spec) checkTimes() error {
	switch {
	case s.IdleTimeout < 0 || s.TTL < 0 || s.OwnerTimeout < 0 && s.OwnerTimeout != NoLimit:
		return fmt.Errorf("durations must not be negative: idle_timeout %s, ttl %s, owner_timeout %s",
			s.IdleTimeout, s.TTL, s.OwnerTimeout)
	case s.OwnerTimeout == NoLimit && s.IdleTimeout == 0 && s.TTL == 0:
		return errors.New("a session without keep-alive signals needs idle_timeout or ttl")
	}
	return nil
}

func (s *Spec) completeLeases() error {
	if !s.Nested {
		return nil
	}
	s.User, s.Dir = cmp.Or(s.User, leaseUser), cmp.Or(s.Dir, CloneDir)
	if uid, gid, ok := strings.Cut(s.User, ":"); !ok || !isID(uid) || !isID(gid) {
		return fmt.Errorf("user %q of leases: use a uid:gid other than root's", s.User)
	}
	return nil
}

// hold drops the limits that a runtime cannot enforce.
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

// Check validates limits.
func (l Limits) Check() error { return l.complete() }

// complete sets defaults and validates the limits.
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

// maxCPUs exceeds any machine's CPUs. An engine treats much greater numbers as no limit.
const maxCPUs = 1 << 20

// minPIDs is the minimum of processes and threads: the guest has some 30, and 10 for each command.
const minPIDs = 64

// effective returns the limits of a complete spec as runtimes take them: 0 for none, processors in thousandths.
func (l Limits) effective() runtime.Limits {
	return runtime.Limits{
		MemoryBytes: max(l.MemoryBytes, 0), CPUs: math.Trunc(max(l.CPUs, 0)*1000) / 1000, PIDs: max(l.PIDs, 0),
	}
}

// leaseUser is the first user of most distributions.
const leaseUser = "1000:1000"

// isID reports whether s is the number of a user or group other than root.
func isID(s string) bool {
	n, err := strconv.ParseUint(s, 10, 31)
	return err == nil && n > 0
}
