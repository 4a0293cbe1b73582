package proving

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// Ground creates the rooms of a proof. It implements proof.Ground.
type Ground struct {
	Groups   *cgroups.Groups
	User     *proc.Credential // the agent's
	Engine   *innerengine.Engine
	Services *innerengine.Services
	// Hidden lists directories that are empty in a room.
	Hidden []string
	// Snapshots are the cached files of setup, below the work tree and the home; nil if there is no cache.
	Snapshots *setupcache.Task

	clean *cleanroom.Ground // nil if not recorded
}

// remember records the image's content where code of the task can write.
func (g *Ground) remember(ctx context.Context, dir string) error {
	c, err := g.config(dir)
	if err == nil {
		g.clean, err = cleanroom.Remember(ctx, c)
	}
	return err
}

func (g *Ground) config(dir string) (c cleanroom.Config, err error) {
	ids, err := subordinate("/etc/subuid")
	gids, gerr := subordinate("/etc/subgid")
	if err := errors.Join(err, gerr); err != nil {
		return c, err
	}
	var layered []string
	if g.Snapshots != nil && g.Snapshots.Mounted() {
		layered = g.Snapshots.Paths()
	}
	return cleanroom.Config{
		Root: "/", Dir: filepath.Join(dir, "rooms"), Task: workorder.Workspace, Layered: layered,
		Apart: []string{workorder.DataRoot, workorder.CacheDir}, Hidden: g.Hidden,
		Mine: func(uid, gid uint32) (bool, bool) {
			return uid == g.User.UID || ids.has(uid), gid == g.User.GID || gids.has(gid)
		},
	}, nil
}

// Beside describes the files that code of the task wrote to directories without a snapshot, one entry for
// each path.
func (g *Ground) Beside(ctx context.Context, dir string) (map[string]string, error) {
	c, err := g.config(dir)
	if err != nil {
		return nil, err
	}
	return c.Written(ctx)
}

// Room creates a room without any file of the agent, for a commit that repo has.
func (g *Ground) Room(ctx context.Context, repo git.Repo, commit string, bare bool) (proof.Room, error) {
	if g.clean == nil {
		return nil, errors.New("the image's content was not recorded")
	}
	if err := g.end(); err != nil {
		return nil, err
	}
	r := &room{ground: g, begins: proof.Begins{Tree: workorder.Workspace, Home: workorder.SandboxHome}}
	var layers cleanroom.Fresh
	if g.Snapshots != nil {
		var side setupcache.CheckoutStart
		if !bare {
			var err error
			if side, err = g.Snapshots.CheckoutStart(ctx, repo, commit); err != nil {
				return nil, err
			}
		}
		r.begins.Index, r.begins.Done, r.begins.Over = side.Index, side.Done, g.Snapshots.Restored()
		layers = func(path string) (string, func(context.Context) error, bool, error) {
			return g.Snapshots.Fresh(path, side, bare)
		}
	}
	var err error
	if r.Room, err = g.clean.New(ctx, layers); err != nil {
		return nil, err
	}
	user := *g.User
	user.Place = r.Place
	r.user = &user
	return r, nil
}

// end kills all processes of the agent's side except those of inner containers.
func (g *Ground) end() error {
	if g.Groups != nil {
		if err := errors.Join(g.Groups.Kill(cgroups.Agent), g.Groups.Kill(cgroups.Git)); err != nil {
			return err
		}
	}
	if n := proc.Sweep(g.User.UID, nil); n > 0 {
		return fmt.Errorf("%d processes of the agent could not be killed", n)
	}
	return nil
}

// room is the room of one side. It implements proof.Room.
type room struct {
	*cleanroom.Room
	ground *Ground
	user   *proc.Credential
	begins proof.Begins
}

func (r *room) Begins() proof.Begins { return r.begins }

func (r *room) User() *proc.Credential { return r.user }

func (r *room) Lacks() []string { return r.Lost }

func (r *room) Free() (proof.Free, error) {
	space, err := r.ground.clean.Space()
	if err != nil {
		return proof.Free{}, err
	}
	memory, err := r.ground.Groups.FreeMemory()
	return proof.Free{Disk: space.Disk, Inodes: space.Inodes, Memory: memory}, err
}

func (r *room) Leave(ctx context.Context) error {
	r.ground.Engine.Guard.Relocate(nil)
	return errors.Join(r.ground.end(), r.Room.Leave(ctx))
}

func (r *room) Enter(ctx context.Context) error {
	g := r.ground
	if err := g.end(); err != nil {
		return err
	}
	if err := g.Services.Renew(ctx); err != nil {
		return err
	}
	g.Engine.Guard.Relocate(r.Lies)
	return nil
}

// idRanges are the ids in the box of root and other users of a user's inner containers.
type idRanges [][2]uint32

func (r idRanges) has(id uint32) bool {
	for _, one := range r {
		if id >= one[0] && id-one[0] < one[1] {
			return true
		}
	}
	return false
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
