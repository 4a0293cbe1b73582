package files

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// watched selects the kernel's events: all changes to directory entries or to a file's content.
const watched = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_MODIFY |
	unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF

// eventBuffer holds some hundreds of kernel events, in bytes. The kernel drops what exceeds its queue.
const eventBuffer = 64 << 10

func (h handler) watch(w http.ResponseWriter, r *http.Request, name string) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return &fs.PathError{Op: "watch", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), "inotify")
	defer f.Close()
	defer context.AfterFunc(r.Context(), func() { _ = f.Close() })()
	top, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	v := &viewer{fd: fd, top: top, all: yes(r, wire.QueryAll), at: map[int32]string{}, w: w, rc: http.NewResponseController(w)}
	if err := v.add("", false); err != nil {
		return err
	}
	_ = v.follow(r.Context(), f) // the client is gone, or sees the end of the stream
	return nil
}

// viewer watches a file, or a directory and its subdirectories.
type viewer struct {
	fd   int
	top  string
	all  bool
	at   map[int32]string // paths below top, by watch descriptor
	lost bool             // there are more directories than can be watched
	w    http.ResponseWriter
	rc   *http.ResponseController
}

// add watches a path and, with all, the directories below it. With tell, it reports their content.
func (v *viewer) add(below string, tell bool) error {
	at := path.Join(v.top, below)
	err := v.mark(below)
	if err == nil && v.all {
		err = v.below(at, tell)
	}
	if errors.Is(err, unix.ENOSPC) && len(v.at) > 0 {
		v.lost = true
		return nil
	}
	return err
}

func (v *viewer) below(at string, tell bool) error {
	return safeopen.Walk(at, func(name string, info fs.FileInfo, err error) error {
		if err != nil || name == at {
			return nil // inaccessible entries are not watched
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(name, v.top), "/")
		if tell {
			if err := v.tell(wire.Change{Type: wire.ChangeCreated, Path: wire.Name(rel), IsDir: info.IsDir()}); err != nil {
				return err
			}
		}
		if !info.IsDir() {
			return nil
		}
		err = v.mark(rel)
		if unseen(err) {
			return nil
		}
		return err
	})
}

// unseen reports an error of an entry that has been deleted, or that the user cannot access.
func unseen(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTDIR)
}

func (v *viewer) mark(below string) error {
	if len(v.at) >= wire.MaxWatched {
		return fmt.Errorf("watch %s: %w", below, unix.ENOSPC)
	}
	flags := uint32(watched)
	if below != "" {
		flags |= unix.IN_DONT_FOLLOW | unix.IN_ONLYDIR
	}
	at := path.Join(v.top, below)
	wd, err := unix.InotifyAddWatch(v.fd, at, flags)
	if err != nil {
		return &fs.PathError{Op: "watch", Path: at, Err: err}
	}
	v.at[int32(wd)] = below
	return nil
}

func (v *viewer) tell(c wire.Change) error {
	frame, err := wire.DocumentFrame(wire.FrameChange, c)
	if err != nil {
		return err
	}
	_, err = v.w.Write(frame)
	return err
}

func (v *viewer) follow(ctx context.Context, f *os.File) error {
	if err := v.overflow(); err != nil {
		return err
	}
	go func() { // a client takes a silent connection for a dead one
		tick := time.NewTicker(wire.AliveEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = f.SetReadDeadline(time.Now()) // ends the read below
			}
		}
	}()
	buf := make([]byte, eventBuffer)
	for {
		if err := v.rc.Flush(); err != nil {
			return err
		}
		n, err := f.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_, err = v.w.Write(wire.AppendFrame(nil, wire.FrameAlive, nil))
			err = errors.Join(err, f.SetReadDeadline(time.Time{}))
		}
		if err != nil {
			return err
		}
		if err := v.events(buf[:n]); err != nil || len(v.at) == 0 { // the watched path has been deleted
			return err
		}
	}
}

// overflow reports, once, that events are missing.
func (v *viewer) overflow() error {
	if !v.lost {
		return nil
	}
	v.lost = false
	return v.tell(wire.Change{Type: wire.ChangeOverflow})
}

// events reports the kernel's events: descriptor, mask, cookie, length and name.
func (v *viewer) events(b []byte) error {
	const head = unix.SizeofInotifyEvent
	for len(b) >= head {
		wd, mask, n := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:]), int(binary.NativeEndian.Uint32(b[12:]))
		name, _, _ := bytes.Cut(b[head:head+n], []byte{0})
		b = b[head+n:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			v.lost = true
		} else if err := v.event(wd, mask, string(name)); err != nil {
			return err
		}
		if err := v.overflow(); err != nil {
			return err
		}
	}
	return nil
}

func (v *viewer) event(wd int32, mask uint32, name string) error {
	dir, known := v.at[wd]
	if mask&unix.IN_IGNORED != 0 {
		delete(v.at, wd)
		return nil
	}
	if !known {
		return nil
	}
	c := wire.Change{Path: wire.Name(path.Join(dir, name)), IsDir: mask&unix.IN_ISDIR != 0}
	switch {
	case name == "" && dir != "":
		return nil // of a directory below, which the watch above it reports
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		c.Type = wire.ChangeCreated
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0:
		c.Type = wire.ChangeRemoved
	case mask&unix.IN_MODIFY != 0:
		c.Type = wire.ChangeWritten
	case mask&unix.IN_ATTRIB != 0:
		c.Type = wire.ChangeMode
	default:
		return nil
	}
	if err := v.tell(c); err != nil || !c.IsDir || !v.all {
		return err
	}
	below := string(c.Path)
	switch c.Type {
	case wire.ChangeRemoved:
		v.forget(below)
	case wire.ChangeCreated:
		if err := v.add(below, true); err != nil && !unseen(err) {
			return err
		}
	}
	return nil
}

// forget ends the watch of a directory that was moved away or deleted, and of its subdirectories.
func (v *viewer) forget(below string) {
	for wd, at := range v.at {
		if at == below || strings.HasPrefix(at, below+"/") {
			_, _ = unix.InotifyRmWatch(v.fd, uint32(wd)) // already removed with the directory
			delete(v.at, wd)
		}
	}
}
