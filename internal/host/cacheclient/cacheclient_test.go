package cacheclient_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/cacheclient"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type oneImage struct{}

func (oneImage) Ensure(context.Context, string, []string, func(workorder.Event)) (workorder.Image, error) {
	return workorder.Image{Name: "box"}, nil
}

// guest reads the request as the box does.
func guest(t *testing.T, b *runtimetest.Box) (req workorder.CacheRequest, rest string) {
	t.Helper()
	in := bufio.NewReader(b.Stdin)
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &req)
	}
	if err != nil {
		t.Error(err)
	}
	more, err := io.ReadAll(in)
	if err != nil {
		t.Error(err)
	}
	return req, string(more)
}

func answer(b *runtimetest.Box, seq int64, e workorder.Event, rep *workorder.CacheReport) {
	e.Seq = seq
	_ = json.NewEncoder(b.Stdout).Encode(workorder.CacheLine{Event: e, Report: rep})
}

func keeper(t *testing.T, program runtimetest.Program) (*cacheclient.Client, *runtimetest.Fake) {
	t.Helper()
	fake := runtimetest.NewFake(map[string]runtimetest.Program{"box": program})
	return &cacheclient.Client{
		Engine: fake, Images: oneImage{}, Owner: "me", Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Isolation: workorder.IsolationConfined,
	}, fake
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	var labels map[string]string
	var fake *runtimetest.Fake
	c, fake := keeper(t, func(b *runtimetest.Box) int {
		boxes, err := fake.Instances(t.Context(), map[string]string{workorder.LabelOwner: "me"})
		if err != nil || len(boxes) != 1 {
			t.Errorf("%v %v", boxes, err)
		} else {
			labels = boxes[0].Labels
		}
		req, rest := guest(t, b)
		if rest != "the archive" || req.Version != workorder.Version || req.ID != labels[workorder.LabelTask] {
			t.Errorf("%+v, then %q", req, rest)
		}
		answer(b, 1, workorder.Event{Type: workorder.EventService, Name: "archive", Status: "loading"}, nil)
		answer(b, 2, workorder.Event{Type: workorder.EventCacheReport, Status: "ok"}, &workorder.CacheReport{Brought: []string{"redis:7"}, NewLayers: 3})
		return 0
	})
	var shown []workorder.Event
	c.Show = func(e workorder.Event) { shown = append(shown, e) }
	rep, err := c.Do(t.Context(), nil, workorder.CacheLoad, workorder.CacheRequest{}, strings.NewReader("the archive"), nil)
	if err != nil || rep.NewLayers != 3 || len(shown) != 1 || shown[0].Name != "archive" {
		t.Errorf("%+v %v, shown %+v", rep, err, shown)
	}
	if id := labels[workorder.LabelTask]; !strings.HasPrefix(id, workorder.CacheBoxPrefix) || workorder.ValidTaskID(id) {
		t.Errorf("the box carries %q", id)
	}
	if n := fake.Count(); n != 0 {
		t.Errorf("%d boxes are left", n)
	}
}

// Part of what was asked for may have been done.
func TestErrorWithAReport(t *testing.T) {
	t.Parallel()
	c, fake := keeper(t, func(b *runtimetest.Box) int {
		guest(t, b)
		answer(b, 1, workorder.Event{Type: workorder.EventCacheReport, Status: "error", Text: "image nope: cannot be pulled"}, &workorder.CacheReport{Brought: []string{"redis:7"}})
		return 1
	})
	rep, err := c.Do(t.Context(), nil, workorder.CachePull, workorder.CacheRequest{Images: []string{"redis:7", "nope"}}, nil, nil)
	if err == nil || err.Error() != "image nope: cannot be pulled" || rep == nil || len(rep.Brought) != 1 || fake.Count() != 0 {
		t.Errorf("%+v, %v", rep, err)
	}
}

// An image of an older version does not know the role.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	c, fake := keeper(t, func(b *runtimetest.Box) int {
		fmt.Fprintln(b.Stderr, "usage: entrypoint init")
		return 64
	})
	_, err := c.Do(t.Context(), nil, workorder.CacheList, workorder.CacheRequest{}, nil, nil)
	if exiterr.Code(err) != workorder.ExitBox || !strings.Contains(err.Error(), "usage: entrypoint init") || exiterr.Hint(err) == "" || fake.Count() != 0 {
		t.Errorf("%v", err)
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	for _, patient := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		hard := make(chan struct{})
		c, fake := keeper(t, func(b *runtimetest.Box) int {
			cancel()
			<-b.Stopped
			if !patient {
				close(hard)
				<-b.Killed
				return 137
			}
			answer(b, 1, workorder.Event{Type: workorder.EventCacheReport, Status: "error", Text: "stopped"}, nil)
			return 1
		})
		_, err := c.Do(ctx, hard, workorder.CacheList, workorder.CacheRequest{}, nil, nil)
		if exiterr.Code(err) != workorder.ExitInterrupted || fake.Count() != 0 {
			t.Errorf("patient %v: %v, %d boxes are left", patient, err, fake.Count())
		}
		cancel()
	}
}

// The stream breaks: what was shown is not shown again.
func TestBrokenStream(t *testing.T) {
	t.Parallel()
	seen, again := make(chan struct{}), make(chan struct{})
	c, fake := keeper(t, func(b *runtimetest.Box) int {
		answer(b, 1, workorder.Event{Type: workorder.EventService, Name: "one"}, nil)
		<-again
		answer(b, 2, workorder.Event{Type: workorder.EventService, Name: "two"}, nil)
		answer(b, 3, workorder.Event{Type: workorder.EventCacheReport, Status: "ok"}, &workorder.CacheReport{})
		return 0
	})
	var shown []string
	c.Show = func(e workorder.Event) {
		if shown = append(shown, e.Name); len(shown) == 1 {
			close(seen)
		}
	}
	go func() {
		<-seen
		fake.Break()
		close(again)
	}()
	_, err := c.Do(t.Context(), nil, workorder.CacheList, workorder.CacheRequest{}, nil, nil)
	if err != nil || strings.Join(shown, " ") != "one two" {
		t.Errorf("%v, shown %v", err, shown)
	}
}

func TestEngineIsAway(t *testing.T) {
	t.Parallel()
	c, fake := keeper(t, func(*runtimetest.Box) int { return 0 })
	fake.SetDown(true)
	if _, err := c.Do(t.Context(), nil, workorder.CacheList, workorder.CacheRequest{}, nil, nil); exiterr.Code(err) != workorder.ExitBox || exiterr.Hint(err) == "" {
		t.Errorf("%v", err)
	}
}

// Images of this engine are handed over when the box asks for them.
func TestHandOver(t *testing.T) {
	t.Parallel()
	c, fake := keeper(t, func(b *runtimetest.Box) int {
		req, _ := guest(t, b)
		path := workorder.ImageInbox + "/1.tar"
		answer(b, 1, workorder.Event{Type: workorder.EventImageRequest, Name: "redis:7", Path: path}, nil)
		for {
			if _, ok := b.ReadFile(path + ".done"); ok {
				break
			}
			select {
			case <-b.Killed:
				return 137
			default:
			}
		}
		got, _ := b.ReadFile(path)
		answer(b, 2, workorder.Event{Type: workorder.EventCacheReport, Status: "ok"}, &workorder.CacheReport{Brought: []string{string(got), req.HostImages["redis:7"]}})
		return 0
	})
	fake.Images = map[string][]byte{"redis:7": []byte("the image")}
	rep, err := c.Do(t.Context(), nil, workorder.CachePull, workorder.CacheRequest{Images: []string{"redis:7"}}, nil, nil)
	if err != nil || len(rep.Brought) != 2 || rep.Brought[0] != "the image" || rep.Brought[1] == "" || fake.Count() != 0 {
		t.Errorf("%+v %v", rep, err)
	}
}

// noStart is an engine that answers every question, but stops answering while it starts a box.
type noStart struct{ *runtimetest.Fake }

func (noStart) Run(context.Context, runtime.ContainerSpec, io.Reader) (string, error) {
	return "", fmt.Errorf("start: %w", runtime.ErrUnavailable)
}

// A start that failed is over, also when the engine did not answer it: waiting brings no box.
func TestStartFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, fake := keeper(t, nil)
		c.Engine = noStart{fake}
		begun := time.Now()
		_, err := c.Do(t.Context(), nil, workorder.CacheList, workorder.CacheRequest{}, nil, nil)
		// The clock is the bubble's: it moves by what is waited for, not by what the machine takes.
		if waited := time.Since(begun); !errors.Is(err, runtime.ErrUnavailable) || exiterr.Code(err) != workorder.ExitBox || waited > time.Second {
			t.Errorf("%v after %s", err, waited)
		}
	})
}
