//go:build e2e

package provision

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	imagetypes "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func engineClient(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// defaultImage returns the image with exactly these parts. Its layers are those of the image with all parts, as far as these begin it.
func defaultImage(t *testing.T, c *client.Client, parts ...string) workorder.Image {
	t.Helper()
	img, err := Ensure(t.Context(), c, Options{
		Version: version.String(), StateDir: t.TempDir(), Parts: parts, Exact: true,
		Progress: func(e workorder.Event) { t.Log(e.Type, e.Status, e.Text) },
	})
	if errors.Is(err, image.ErrNoEntrypoint) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestE2EParts: without parts the image is small, and a part shares the layers of the images with others.
func TestE2EParts(t *testing.T) {
	t.Parallel()
	c := engineClient(t)
	all := defaultImage(t, c, image.Parts()...)
	before, err := List(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	size := map[string]int64{}
	for name, parts := range map[string][]string{"all": image.Parts(), "none": nil, "claude": {workorder.HarnessClaudeCode}} {
		img := defaultImage(t, c, parts...)
		if !slices.ContainsFunc(before, func(b Built) bool { return b.ID == img.ID }) && name != "all" {
			t.Cleanup(func() {
				if _, err := c.ImageRemove(context.WithoutCancel(t.Context()), img.Name, imagetypes.RemoveOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		r, err := c.ImageInspect(t.Context(), img.Name)
		if err != nil {
			t.Fatal(err)
		}
		size[name] = r.Size
		if whole, err := c.ImageInspect(t.Context(), all.Name); err != nil || r.RootFS.Layers[1] != whole.RootFS.Layers[1] {
			t.Errorf("%s: the layers above the base are not shared (%v)", name, err)
		}
		for program, part := range map[string]string{
			"claude": workorder.HarnessClaudeCode, "codex": workorder.HarnessCodex, "opencode": workorder.HarnessOpencode,
			"supabase": workorder.PartSupabase, "chromium": workorder.PartBrowser, "ffmpeg": workorder.PartBrowser, "node": "",
		} {
			reason, _ := asSandbox(t, c, img.Name, "jq -r '.missing["+strconv.Quote(cmp.Or(part, program))+"] // empty' /usr/share/sandbox-agent/image.json")
			_, code := asSandbox(t, c, img.Name, "command -v "+program)
			if want := part == "" || slices.Contains(parts, part); (code == 0) != want && reason == "" {
				t.Errorf("image with %v: %s there: %v, want %v", parts, program, code == 0, want)
			}
		}
	}
	const most = 1_200_000_000
	if size["none"] > most || size["claude"] <= size["none"] || size["all"] <= size["claude"] {
		t.Errorf("sizes %v, want at most %d without parts", size, most)
	}
}

// TestE2EDefaultImage builds the image when it is missing and uses what it
// promises, as the user of the agent.
func TestE2EDefaultImage(t *testing.T) {
	c := engineClient(t)
	img := defaultImage(t, c, image.Parts()...)
	again, err := Ensure(t.Context(), c, Options{Version: version.String(), StateDir: t.TempDir(), Parts: image.Parts(), Progress: func(e workorder.Event) {
		t.Errorf("an image that is there caused the event %s %s", e.Type, e.Text)
	}})
	if err != nil || again != img {
		t.Errorf("second time: %+v, %v", again, err)
	}
	built, err := List(t.Context(), c)
	if err != nil || len(built) == 0 {
		t.Errorf("List = %v, %v", built, err)
	}
	// Parts that the image can be without where their source does not answer.
	optional := map[string]string{"codex": "codex", "opencode": "opencode", "supabase": "supabase", "playwright": "chromium", "agent-browser": "chromium"}
	for name, script := range map[string]string{
		"user":     `test "$(id -un):$(id -u):$(id -g):$HOME" = sandbox:1000:1000:/home/sandbox; test -w /workspace; ! command -v sudo`,
		"tools":    `for c in git rg tmux jq curl gcc make pip npx ssh docker; do command -v $c || exit 1; done; docker compose version; docker buildx version`,
		"node":     `test "$(node -p 'process.versions.node.split(".")[0] >= 22')" = true; npm --version`,
		"python":   `python3 -m venv /tmp/v; /tmp/v/bin/python -c 'import ssl, sqlite3'`,
		"claude":   `claude --version | grep -F "$(jq -r '.contents["claude-code"]' /usr/share/sandbox-agent/image.json)"`,
		"codex":    `codex --version | grep -F "$(jq -r '.contents.codex' /usr/share/sandbox-agent/image.json)"; codex exec --help | grep -e --json`,
		"opencode": `opencode --version | grep -F "$(jq -r '.contents.opencode' /usr/share/sandbox-agent/image.json)"`,
		"git":      `git config --system safe.directory | grep -x /workspace; test "$GIT_TERMINAL_PROMPT" = 0`,
		"subids":   `grep -x sandbox:1000:1 /etc/subuid; grep -x sandbox:100000:65535 /etc/subgid`,
		"engine":   `command -v dockerd containerd runc fuse-overlayfs iptables`,
		"supabase": `supabase --version`,
		"playwright": `cat >/tmp/s.js <<'EOF'
const { chromium } = require('/opt/playwright/driver/package');
(async () => {
	const browser = await chromium.launch();
	const context = await browser.newContext({ recordVideo: { dir: '/tmp/video' } });
	const page = await context.newPage();
	await page.setContent('<h1>hello</h1>');
	await page.screenshot({ path: '/tmp/a.png' });
	await context.close();
	await browser.close();
})();
EOF
timeout 60 node /tmp/s.js; file /tmp/a.png | grep 'PNG image'; file /tmp/video/*.webm | grep WebM`,
		"agent-browser": `timeout 60 agent-browser open 'data:text/html,<button>go</button>'; timeout 20 agent-browser snapshot -i | grep -F 'button "go"'
timeout 20 agent-browser screenshot /tmp/b.png; file /tmp/b.png | grep 'PNG image'; timeout 20 agent-browser close`,
	} {
		t.Run(name, func(t *testing.T) {
			if part, ok := optional[name]; ok {
				if reason, code := asSandbox(t, c, img.Name, "jq -er '.missing[\""+part+"\"]' /usr/share/sandbox-agent/image.json"); code == 0 {
					t.Skipf("%s is not in this image: %s", part, reason)
				}
			}
			out, code := asSandbox(t, c, img.Name, "set -e\n"+script)
			if code != 0 {
				t.Errorf("exit code %d:\n%s", code, out)
			}
		})
	}
}

func asSandbox(t *testing.T, c *client.Client, img, script string) (string, int64) {
	t.Helper()
	ctx := t.Context()
	created, err := c.ContainerCreate(ctx, &container.Config{
		Image: img, User: "1000:1000", Entrypoint: []string{"sh", "-c", script}, Env: []string{"HOME=/home/sandbox"},
	}, nil, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		if err := c.ContainerRemove(context.WithoutCancel(ctx), created.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			t.Error(err)
		}
	})
	done, failed := c.ContainerWait(ctx, created.ID, container.WaitConditionNextExit)
	if err := c.ContainerStart(ctx, created.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	var code int64
	select {
	case end := <-done:
		code = end.StatusCode
	case err := <-failed:
		t.Fatal(err)
	}
	logs, err := c.ContainerLogs(ctx, created.ID, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close() // read to its end
	var out bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, &out, logs); err != nil {
		t.Fatal(err)
	}
	return out.String(), code
}

// TestE2EBootstrap makes a base from the package archive that this machine uses.
func TestE2EBootstrap(t *testing.T) {
	if _, err := planHere(); err != nil {
		t.Skip(err)
	}
	c := engineClient(t)
	before, err := (&builder{engine: c}).localBase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(before, baseRepository) {
		t.Skip("a base is there already: the build of the default image made or found it")
	}
	b := &builder{engine: c, arch: runtime.GOARCH, o: Options{StateDir: t.TempDir(), Progress: func(workorder.Event) {}}}
	name, err := b.bootstrap(t.Context(), readHost(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ImageRemove(t.Context(), name, imagetypes.RemoveOptions{}); err != nil {
		t.Error(err)
	}
}
