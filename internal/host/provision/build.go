package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/filters"
	imagetypes "github.com/docker/docker/api/types/image"
	"github.com/gofrs/flock"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// StepImage is the step of the events. The caller of Ensure emits its start and end.
const StepImage = "image"

// missingMark begins a line of the build about an unavailable optional part; build/lib.sh prints it.
const missingMark = "not in this image: "

const tailBytes = 3 << 10 // of a failed build's output in its error

type builder struct {
	engine Engine
	src    *image.Source
	name   string
	hash   string
	arch   string
	o      Options
}

func (b *builder) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, buildDeadline,
		fmt.Errorf("image not built within %s", buildDeadline))
	defer cancel()
	b.say("building %s", b.name)
	host := readHost(ctx)
	base, err := b.base(ctx, host)
	if err != nil {
		return err
	}
	return b.build(ctx, b.src, base, host)
}

func (b *builder) emit(e workorder.Event) {
	e.Time = time.Now()
	if len(e.Text) > workorder.MaxEventText {
		e.Text = strings.ToValidUTF8(e.Text[:workorder.MaxEventText], "")
	}
	b.o.Progress(e)
}

func (b *builder) say(format string, a ...any) {
	b.emit(workorder.Event{Type: workorder.EventOutput, Name: StepImage, Text: fmt.Sprintf(format, a...)})
}

func (b *builder) warn(format string, a ...any) {
	b.emit(workorder.Event{Type: workorder.EventWarning, Name: StepImage, Text: fmt.Sprintf(format, a...)})
}

// build builds a source on a base image, under the builder's name.
func (b *builder) build(ctx context.Context, src *image.Source, base string, host host) error {
	pr, pw := io.Pipe()
	defer pr.Close() // unblocks the writer if the engine stopped reading
	go func() {
		pw.CloseWithError(src.WriteContext(pw, image.Host{CAs: host.cas, Registry: host.registry}))
	}()
	return b.submit(ctx, pr, build.ImageBuildOptions{
		BuildArgs: buildArgs(host.proxies, base),
		NoCache:   b.o.Rebuild,
		Labels: map[string]string{
			labelHash: b.hash, labelVersion: b.o.Version, labelParts: strings.Join(b.src.Parts(), " "),
		},
	})
}

// buildArgs returns build arguments, with BASE if it is not empty.
func buildArgs(values map[string]string, base string) map[string]*string {
	args := map[string]*string{}
	for k, v := range values {
		args[k] = &v
	}
	if base != "" {
		args["BASE"] = &base
	}
	return args
}

// submit builds the context under the builder's name.
func (b *builder) submit(ctx context.Context, buildContext io.Reader, o build.ImageBuildOptions) error {
	o.Tags, o.Version = []string{b.name}, build.BuilderV1
	o.Remove, o.ForceRemove = true, true
	res, err := b.engine.ImageBuild(ctx, buildContext, o)
	if err != nil {
		return exiterr.New(workorder.ExitBox, fmt.Errorf("build image %s: %w", b.name, orCause(ctx, err)), "")
	}
	defer res.Body.Close()
	tail := proc.NewTail(tailBytes)
	if err := b.follow(res.Body, tail); err != nil {
		return exiterr.New(workorder.ExitBox,
			fmt.Errorf("build image %s: %w\nlast output:\n%s", b.name, orCause(ctx, err), strings.TrimRight(tail.String(), "\n")),
			"a build needs the distribution's package archive and the npm registry: check this machine's network, proxy and CA certificates, "+
				"then try again")
	}
	return nil
}

// message has the used fields of the engine's progress messages.
type message struct {
	Stream string `json:"stream"`
	Status string `json:"status"`
	Error  string `json:"error"`
}

// stepLine matches the classic builder's line for an instruction.
var stepLine = lazyregexp.New(`^Step (\d+)/(\d+) : (.+)`)

// follow reads the builder's messages, reports one event per instruction, and copies the output to tail.
func (b *builder) follow(r io.Reader, tail io.Writer) error {
	dec := json.NewDecoder(r)
	for {
		var m message
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the build's output: %w", err)
		}
		if m.Error != "" {
			return errors.New(strings.TrimSpace(m.Error))
		}
		for line := range strings.Lines(m.Stream) {
			line = strings.TrimRight(line, "\r\n")
			_, _ = io.WriteString(tail, line+"\n") // a Tail never fails
			if f := stepLine.FindStringSubmatch(line); f != nil {
				b.say("[%s/%s] %s", f[1], f[2], short(f[3]))
			} else if what, ok := strings.CutPrefix(line, missingMark); ok {
				b.warn("%s%s", missingMark, what)
			}
		}
	}
}

// short returns an instruction as one short line.
func short(s string) string {
	const width = 100
	return text.Runes(text.Words(s), width)
}

// noTag is the tag that older engines list for an untagged image.
const noTag = "<none>:<none>"

func list(ctx context.Context, engine Engine) ([]Built, error) {
	sum, err := engine.ImageList(ctx, imagetypes.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelHash))})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var out []Built
	for _, s := range sum {
		if _, ok := s.Labels[runtime.LabelSnapshot]; ok {
			continue // a snapshot, which belongs to the user
		}
		b := Built{
			ID: s.ID, Hash: s.Labels[labelHash], Version: s.Labels[labelVersion], Prepared: s.Labels[labelPrepared],
			Parts: s.Labels[labelParts], From: s.Labels[labelFrom], Created: time.Unix(s.Created, 0), Bytes: s.Size,
		}
		for _, t := range s.RepoTags {
			if t == noTag {
				continue
			}
			b.Tags = append(b.Tags, t)
			if b.Name == "" && ownTag(t, b.Hash) {
				b.Name = t
			}
		}
		b.Own = len(b.Tags) > 0 && !slices.ContainsFunc(b.Tags, func(t string) bool { return !ownTag(t, b.Hash) })
		out = append(out, b)
	}
	slices.SortFunc(out, func(x, y Built) int { return y.Created.Compare(x.Created) })
	return out, nil
}

// orCause returns the cause of ctx's end, if it has ended, instead of the resulting error.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// retryAfter is the time until a failed image build is repeated: each task would otherwise start one for minutes. A missing
// package stays missing for days, but a network may be back within the hour.
const retryAfter = time.Hour

const maxFailure = 4 << 10 // bytes of a stored reason

// failure is the path of a file with the reason of a failed build. Its modification time is that of the build.
type failure string

// lately returns the failure of a build less than retryAfter ago; nil means that a build may be tried.
func (f failure) lately(now time.Time) error {
	fi, err := os.Stat(string(f))
	if err != nil || now.Sub(fi.ModTime()) >= retryAfter {
		return nil
	}
	why, err := os.ReadFile(string(f))
	if err != nil {
		return nil
	}
	return fmt.Errorf("build failed %s ago, next try after %s: %s", now.Sub(fi.ModTime()).Round(time.Second), retryAfter, why)
}

// note stores a failure, and removes expired ones of all images.
func (f failure) note(why error, now time.Time) error {
	dir := filepath.Dir(string(f))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("store the failure of an image build: %w", err)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if fi, ierr := e.Info(); ierr == nil && now.Sub(fi.ModTime()) >= retryAfter {
			if rerr := os.Remove(filepath.Join(dir, e.Name())); !errors.Is(rerr, fs.ErrNotExist) {
				err = errors.Join(err, rerr)
			}
		}
	}
	text := why.Error()
	return errors.Join(err, statedir.WriteFile(string(f), []byte(text[:min(len(text), maxFailure)]), 0o600))
}

const lockPoll = 200 * time.Millisecond // builds take minutes

// imageLock is the lock file of the default image and its base.
const imageLock = "image.lock"

// lock takes a lock in the state directory, so that processes do not build the same image at once. The kernel releases it when
// its holder dies.
func lock(ctx context.Context, dir, name string, progress func(workorder.Event)) (unlock func(), waited bool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, false, fmt.Errorf("create the state directory: %w", err)
	}
	f := flock.New(filepath.Join(dir, name), flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	locked, err := f.TryLock()
	if err == nil && !locked {
		waited = true
		progress(workorder.Event{
			Time: time.Now(), Type: workorder.EventOutput, Name: StepImage,
			Text: "waiting for another process that builds the image",
		})
		locked, err = f.TryLockContext(ctx, lockPoll)
	}
	switch {
	case !locked && ctx.Err() != nil:
		return nil, waited, fmt.Errorf("wait for another process that builds the image: %w", context.Cause(ctx))
	case err != nil:
		return nil, waited, fmt.Errorf("lock image builds with %s: %w", f.Path(), err)
	}
	// Unlock first: a child forked meanwhile has the file open until its exec.
	return func() { _ = f.Unlock() }, waited, nil
}
