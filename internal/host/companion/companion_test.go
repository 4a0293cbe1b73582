package companion_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const id = "T-A1B2C3D4"

// serve runs a companion and returns its answer and its end.
func serve(t *testing.T, fake *runtimetest.Fake, cfg companion.Config) (companion.Ready, <-chan error) {
	t.Helper()
	in, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() {
		end <- companion.Serve(t.Context(), strings.NewReader(string(in)), w, fake, slog.New(slog.NewTextHandler(io.Discard, nil)))
	}()
	line, err := bufio.NewReader(r).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	var ready companion.Ready
	if err := json.Unmarshal(line, &ready); err != nil {
		t.Fatal(err)
	}
	return ready, end
}

func run(t *testing.T, fake *runtimetest.Fake) string {
	t.Helper()
	box, err := fake.Run(t.Context(), runtime.ContainerSpec{Name: "box", Image: "box", Labels: map[string]string{workorder.LabelTask: id}}, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	return box
}

// TestStuckStream: a companion ends with its box, also when the engine forgets to
// end the box's output.
func TestStuckStream(t *testing.T) {
	fake := runtimetest.NewFake(map[string]runtimetest.Program{"box": func(*runtimetest.Box) int { return 0 }})
	fake.StuckStreams = true
	run(t, fake)
	_, end := serve(t, fake, companion.Config{TaskID: id, Dir: t.TempDir()})
	if err := <-end; err != nil {
		t.Error(err)
	}
}

// TestImages: what was offered is delivered and marked, what was not is refused,
// and a place outside the inbox is not written at all.
func TestImages(t *testing.T) {
	const inbox = workorder.ImageInbox
	got := make(chan string, 3)
	fake := runtimetest.NewFake(map[string]runtimetest.Program{"box": func(b *runtimetest.Box) int {
		for i, req := range []struct{ image, path, mark string }{
			{"redis:7", inbox + "/redis.tar", inbox + "/redis.tar.done"},
			{"private:1", inbox + "/private.tar", inbox + "/private.tar.failed"},
		} {
			line, err := json.Marshal(workorder.Event{Seq: int64(2 * (i + 1)), Type: workorder.EventImageRequest, Name: req.image, Path: req.path})
			if err != nil {
				return 1
			}
			fmt.Fprintf(b.Stdout, `{"seq":%d,"type":"image.request","name":"redis:7","path":"/etc/evil"}`+"\n%s\n", 2*i+1, line)
			for {
				if _, ok := b.ReadFile(req.mark); ok {
					break
				}
				time.Sleep(time.Millisecond)
			}
			content, _ := b.ReadFile(req.path)
			got <- string(content)
		}
		if _, ok := b.ReadFile("/etc/evil"); ok {
			return 2
		}
		return 0
	}})
	fake.Images = map[string][]byte{"redis:7": []byte("the archive"), "private:1": []byte("secret")}
	_, end := serve(t, fake, companion.Config{TaskID: id, Dir: t.TempDir(), Images: []string{"redis:7"}})
	run(t, fake)
	if s := <-got; s != "the archive" {
		t.Errorf("delivered %q", s)
	}
	if s := <-got; s != "" {
		t.Errorf("delivered what was not offered: %q", s)
	}
	if err := <-end; err != nil {
		t.Errorf("the companion ended with %v", err)
	}
	boxes, err := fake.Instances(t.Context(), nil)
	if err != nil || len(boxes) != 1 || !strings.Contains(boxes[0].Status, "(0)") {
		t.Errorf("box: %+v, %v", boxes, err)
	}
}

// TestLife: it serves as long as the box lives and not longer, over an engine that restarts.
func TestLife(t *testing.T) {
	repo := t.TempDir()
	if err := proc.Run(t.Context(), proc.Spec{Argv: []string{"git", "init", "-q", repo}}); err != nil {
		t.Fatal(err)
	}
	fake := runtimetest.NewFake(map[string]runtimetest.Program{"box": func(b *runtimetest.Box) int {
		<-b.Stopped
		return 0
	}})
	ready, end := serve(t, fake, companion.Config{TaskID: id, Dir: t.TempDir(), Repo: repo, TargetBranch: "agent/" + id, Listen: "127.0.0.1:0", Token: "x"})
	box := run(t, fake)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(ready.CA)) {
		t.Fatalf("certificate %q", ready.CA)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, DisableKeepAlives: true}}
	get := func() (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/repo.git/info/refs?service=git-upload-pack", ready.Port), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("sandbox", "x")
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		return resp.StatusCode, nil
	}
	fake.SetDown(true)
	if code, err := get(); code != http.StatusOK {
		t.Errorf("while the engine is away: %d, %v", code, err)
	}
	fake.SetDown(false)
	if err := fake.Stop(t.Context(), box, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := <-end; err != nil {
		t.Errorf("ended with %v", err)
	}
	if _, err := get(); err == nil {
		t.Error("still serves after the box's end")
	}
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	if os.Getenv("COMPANION_TEST_CHILD") != "" {
		// This test's own program plays the companion that cannot listen.
		err := companion.Serve(t.Context(), os.Stdin, os.Stdout, runtimetest.NewFake(nil), slog.New(slog.NewTextHandler(os.Stderr, nil)))
		if err != nil {
			os.Exit(3)
		}
		os.Exit(0)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("COMPANION_TEST_CHILD", "1")
	cfg := companion.Config{TaskID: id, Dir: t.TempDir(), Repo: t.TempDir(), TargetBranch: "agent/" + id, Listen: "203.0.113.1:0"}
	_, err = companion.Start(context.WithoutCancel(t.Context()), exe, []string{"-test.run", "^TestStartSaysWhatIsWrong$"}, cfg)
	if err == nil || !strings.Contains(err.Error(), "listen for the sandbox on 203.0.113.1:0") {
		t.Errorf("error = %v", err)
	}
	if _, err := companion.Start(t.Context(), "/bin/true", nil, cfg); err == nil {
		t.Error("a program that says nothing was taken for a companion")
	}
}

// A companion whose CLI was killed before there was a box does not wait for one.
func TestOrphan(t *testing.T) {
	t.Parallel()
	notOurs := os.Getpid() // nobody is their own parent
	_, end := serve(t, runtimetest.NewFake(nil), companion.Config{TaskID: id, Dir: t.TempDir(), Parent: notOurs})
	if err := <-end; err == nil || !strings.Contains(err.Error(), "died") {
		t.Errorf("ended with %v", err)
	}
}
