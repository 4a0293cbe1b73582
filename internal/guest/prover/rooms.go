package prover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/cgroups"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/cleanroom"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/innerengine"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/setupcache"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/runner/proof"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Rooms creates the rooms of a proof. It implements proof.RoomMaker.
type Rooms struct {
	Groups   *cgroups.Groups
	User     *proc.Credential // the agent's
	Engine   *innerengine.Engine
	Services *innerengine.Services
	// Hidden lists directories that are empty in a room.
	Hidden []string
	// Snapshots are the cached files of setup, below the work tree and the home; nil if there is no cache.
	Snapshots *setupcache.Task

	clean *cleanroom.Baseline // nil if not recorded
}

// recordBaseline records the image's content where code of the task can write.
func (r *Rooms) recordBaseline(ctx context.Context, dir string) error {
	c, err := r.config(dir)
	if err == nil {
		r.clean, err = cleanroom.NewBaseline(ctx, c)
	}
	return err
}

func (r *Rooms) config(dir string) (c cleanroom.Config, err error) {
	ids, err := subordinate("/etc/subuid")
	gids, gerr := subordinate("/etc/subgid")
	if err := errors.Join(err, gerr); err != nil {
		return c, err
	}
	var layered []string
	if r.Snapshots != nil && r.Snapshots.Mounted() {
		layered = r.Snapshots.Paths()
	}
	return cleanroom.Config{
		Root: "/", Dir: filepath.Join(dir, "rooms"), Task: workorder.Workspace, Layered: layered,
		Excluded: []string{workorder.DataRoot, workorder.CacheDir}, Hidden: r.Hidden,
		IsTaskUser: func(uid, gid uint32) (bool, bool) {
			return uid == r.User.UID || ids.has(uid), gid == r.User.GID || gids.has(gid)
		},
	}, nil
}

// Beside describes the files that code of the task wrote to directories without a snapshot, by path.
func (r *Rooms) Beside(ctx context.Context, dir string) (map[string]string, error) {
	c, err := r.config(dir)
	if err != nil {
		return nil, err
	}
	return c.Written(ctx)
}

// Room creates a room without any file of the agent, for a commit that repo has.
func (r *Rooms) Room(ctx context.Context, repo git.Repo, commit string, bare bool) (proof.Room, error) {
	if r.clean == nil {
		return nil, errors.New("the image's content was not recorded")
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	out := &sideRoom{rooms: r, start: proof.StartState{Tree: workorder.Workspace, Home: workorder.SandboxHome}}
	var layers cleanroom.LayerFunc
	if r.Snapshots != nil {
		var side setupcache.CheckoutStart
		if !bare {
			var err error
			if side, err = r.Snapshots.CheckoutStart(ctx, repo, commit); err != nil {
				return nil, err
			}
		}
		out.start.Index, out.start.Done, out.start.SetupRestored = side.Index, side.Done, r.Snapshots.Restored()
		layers = func(path string) (string, func(context.Context) error, bool, error) {
			return r.Snapshots.Fresh(path, side, bare)
		}
	}
	var err error
	if out.Room, err = r.clean.New(ctx, layers); err != nil {
		return nil, err
	}
	user := *r.User
	user.Namespace = out.Namespace
	out.user = &user
	return out, nil
}

// end kills all processes of the agent's side except those of inner containers.
func (r *Rooms) end() error {
	if r.Groups != nil {
		if err := errors.Join(r.Groups.Kill(cgroups.Agent), r.Groups.Kill(cgroups.Git)); err != nil {
			return err
		}
	}
	if n := proc.Sweep(r.User.UID, nil); n > 0 {
		return fmt.Errorf("%d processes of the agent could not be killed", n)
	}
	return nil
}

// sideRoom is the room of one side. It implements proof.Room.
type sideRoom struct {
	*cleanroom.Room
	rooms *Rooms
	user  *proc.Credential
	start proof.StartState
}

func (r *sideRoom) StartState() proof.StartState { return r.start }

func (r *sideRoom) User() *proc.Credential { return r.user }

func (r *sideRoom) Missing() []string { return r.Room.Missing }

func (r *sideRoom) FreeResources() (proof.FreeResources, error) {
	space, err := r.rooms.clean.Space()
	if err != nil {
		return proof.FreeResources{}, err
	}
	memory, err := r.rooms.Groups.FreeMemory()
	return proof.FreeResources{Disk: space.Disk, Inodes: space.Inodes, Memory: memory}, err
}

func (r *sideRoom) Remove(ctx context.Context) error {
	r.rooms.Engine.Guard.SetBindDirs(nil)
	return errors.Join(r.rooms.end(), r.Room.Remove(ctx))
}

func (r *sideRoom) Enter(ctx context.Context) error {
	if err := r.rooms.end(); err != nil {
		return err
	}
	if err := r.rooms.Services.ResetForProof(ctx); err != nil {
		return err
	}
	r.rooms.Engine.Guard.SetBindDirs(r.HostPaths)
	return nil
}

// idRanges are the ids in the box of root and other users of a user's inner containers.
type idRanges [][2]uint32

func (r idRanges) has(id uint32) bool {
	return slices.ContainsFunc(r, func(one [2]uint32) bool { return id >= one[0] && id-one[0] < one[1] })
}

// subordinate reads the ranges of the user sandbox from /etc/subuid or /etc/subgid.
func subordinate(file string) (idRanges, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read subordinate ids: %w", err)
	}
	var all idRanges
	for line := range strings.Lines(string(b)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 || f[0] != workorder.SandboxUser {
			continue
		}
		first, err := strconv.ParseUint(f[1], 10, 32)
		count, cerr := strconv.ParseUint(f[2], 10, 32)
		if err := errors.Join(err, cerr); err != nil {
			return nil, fmt.Errorf("read subordinate ids of %s: %w", file, err)
		}
		all = append(all, [2]uint32{uint32(first), uint32(count)})
	}
	return all, nil
}
