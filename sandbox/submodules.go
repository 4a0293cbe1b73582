package sandbox

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
)

// submoduleScript creates a submodule of the clone $1 at its path $2 and commit $3, from the bundle on standard input.
// Its refs tell Save which commits are not the sandbox's own.
const submoduleScript = `set -eu
cd "$1"
b=$(mktemp "$(git rev-parse --absolute-git-dir)/bundle-XXXXXX") # on the disk: the /tmp of a jail is memory
trap 'rm -f "$b"' EXIT
cat >"$b"
rmdir "$2" 2>/dev/null || [ ! -e "$2" ]
git -c core.bigFileThreshold=8m clone -q --no-checkout "$b" "./$2"
git -c core.bigFileThreshold=8m -C "./$2" checkout -q --detach "$3"
git -C "./$2" for-each-ref --format='update refs/sandbox-agent/known/%(refname:lstrip=3) %(objectname)' refs/remotes/origin |
	git -C "./$2" update-ref --stdin
git -C "./$2" remote remove origin
git -C "./$2" update-ref refs/sandbox-agent/base "$3"`

// AddSubmodules adds the submodules that are checked out on the host to the sandbox's clone. It fetches nothing. missing
// has the reasons for those that it could not add.
func (b *Branch) AddSubmodules(ctx context.Context) (missing []error, err error) {
	s := b.in.current()
	if !s.clonesLocal() {
		return nil, fmt.Errorf("sandbox %s: %w", s.Name, ErrNoClone)
	}
	for _, c := range b.clones() {
		some, err := b.addSubmodules(ctx, c)
		if missing = append(missing, some...); err != nil {
			return missing, err
		}
	}
	return missing, nil
}

func (b *Branch) addSubmodules(ctx context.Context, c Clone) (missing []error, err error) {
	repo, err := localrepo.Open(ctx, c.Repo)
	if err != nil {
		return nil, err
	}
	all, err := repo.Submodules(ctx, c.Ref)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	dir, remove, err := copyDir(os.TempDir())
	if err != nil {
		return nil, err
	}
	defer remove()
	for _, m := range all {
		if err := b.submodule(ctx, c.Dir, m, filepath.Join(dir, "bundle")); err != nil {
			missing = append(missing, fmt.Errorf("submodule %s: %w", m.Path, err))
		}
	}
	return missing, nil
}

func (b *Branch) submodule(ctx context.Context, clone string, m localrepo.Submodule, file string) error {
	if err := m.Bundle(ctx, file); err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return b.in.exec(ctx, []string{"sh", "-c", submoduleScript, "sh", clone, m.Path, m.Commit}, f, io.Discard)
}
