package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLooked bounds what is read of one file, in bytes; a secret is at its beginning or nowhere.
const maxLooked = 8 << 20

// keys are the attempts to find a secret: the model's key, the credential of git, and
// what was given to setup alone. All begin with the canary.
func keys() []attempt {
	k := func(name string, run func(c *Config) (string, bool)) attempt {
		return attempt{group: "secrets", name: name, want: always(refused), run: run}
	}
	return []attempt{
		k("in the environment and arguments of every process", func(c *Config) (string, bool) {
			return look(c, "/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline")
		}),
		k("in every file that can be read", everyFile),
		k("in the memory of every process that can be read", memory),
		k("in git's configuration and credential helpers", func(c *Config) (string, bool) {
			out, _ := execute("git", "config", "--list", "--show-origin")
			fill, _ := execute("sh", "-c", "printf 'url="+c.Origin+"\n\n' | GIT_TERMINAL_PROMPT=0 git credential fill")
			return found(c, "git", []byte(out+fill))
		}),
		k("in what Docker tells of containers, images and itself", func(c *Config) (string, bool) {
			var all []byte
			for _, path := range []string{"/containers/json?all=1", "/info", "/images/json", "/system/df"} {
				_, b, err := docker(http.MethodGet, path, "")
				if err != nil {
					return short(err), true
				}
				all = append(all, b...)
			}
			return found(c, "docker", all)
		}),
		k("in the gateway's answers", func(c *Config) (string, bool) {
			_, head, body, err := model("/v1/messages", os.Getenv("ANTHROPIC_API_KEY"),
				`{"model":"echo","max_tokens":1,"messages":[{"role":"user","content":"say your headers"}]}`)
			if err != nil {
				return short(err), true
			}
			return found(c, "the model's answer", append([]byte(fmt.Sprint(head)), body...))
		}),
	}
}

func found(c *Config, where string, b []byte) (string, bool) {
	if bytes.Contains(b, c.canary()) {
		return "a secret in " + where, true
	}
	return fmt.Sprintf("nothing in %d bytes", len(b)), false
}

func look(c *Config, patterns ...string) (string, bool) {
	n := 0
	for _, p := range patterns {
		paths, err := filepath.Glob(p)
		if err != nil {
			return short(err), true
		}
		for _, path := range paths {
			b, err := os.ReadFile(path)
			if err != nil {
				continue
			}
			n++
			if _, ok := found(c, "", b); ok {
				return "a secret in " + path, true
			}
		}
	}
	return fmt.Sprintf("nothing in %d files", n), n == 0
}

// everyFile reads all that uid sandbox can read, but the kernel's own file systems.
func everyFile(c *Config) (string, bool) {
	n, where := 0, ""
	pattern := c.canary()
	buf := make([]byte, maxLooked)
	err := filepath.WalkDir("/", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // unreadable
		}
		if d.IsDir() {
			if p == "/proc" || p == "/sys" || p == "/usr/share" || p == "/opt/playwright" || strings.HasSuffix(p, "/node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		f, err := os.Open(p)
		if err != nil {
			return nil
		}
		defer f.Close()
		k, err := io.ReadFull(f, buf)
		if k == 0 && err != nil {
			return nil
		}
		n++
		if bytes.Contains(buf[:k], pattern) {
			where = p
			return filepath.SkipAll
		}
		return nil
	})
	if where != "" {
		return "a secret in " + where, true
	}
	return fmt.Sprintf("nothing in %d files %s", n, short(err)), n == 0
}

// memory reads the memory of every process that lets itself be read.
func memory(c *Config) (string, bool) {
	pattern := c.canary()
	n := 0
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return short(err), true
	}
	for _, d := range dirs {
		if filepath.Base(d) == fmt.Sprint(os.Getpid()) {
			continue // the pattern itself
		}
		maps, err := os.ReadFile(d + "/maps")
		if err != nil {
			continue
		}
		fd, err := unix.Open(d+"/mem", unix.O_RDONLY, 0)
		if err != nil {
			continue
		}
		n++
		hit := inMemory(fd, string(maps), pattern)
		unix.Close(fd)
		if hit {
			return "a secret in the memory of " + d, true
		}
	}
	return fmt.Sprintf("nothing in %d processes", n), false
}

func inMemory(fd int, maps string, pattern []byte) bool {
	buf := make([]byte, maxLooked)
	for line := range strings.Lines(maps) {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || !strings.HasPrefix(mode, "rw") {
			continue
		}
		for at := from; at < to; at += int64(len(buf)) - int64(len(pattern)) {
			k, err := unix.Pread(fd, buf[:min(int64(len(buf)), to-at)], at)
			if err != nil || k <= 0 {
				break
			}
			if bytes.Contains(buf[:k], pattern) {
				return true
			}
		}
	}
	return false
}

// gatewayAttempts are the attempts to get more of the model's key than its use.
func gatewayAttempts() []attempt {
	g := func(name string, w want, run func(c *Config) (string, bool)) attempt {
		return attempt{group: "gateway", name: name, want: always(w), run: run}
	}
	const question = `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[{"role":"user","content":"hello"}]}`
	ask := func(path, key string) func(*Config) (string, bool) {
		return func(*Config) (string, bool) {
			if key == "" {
				key = os.Getenv("ANTHROPIC_API_KEY")
			}
			code, _, body, err := model(path, key, question)
			return fmt.Sprintf("%d %s%s", code, body, short(err)), err == nil && code == http.StatusOK
		}
	}
	return []attempt{
		g("a question to the model (control)", works, ask("/v1/messages", "")),
		g("without the placeholder", refused, ask("/v1/messages", "sk-ant-something-else")),
		g("the files of the organisation", refused, ask("/v1/files", "")),
		g("an unmetered batch", refused, ask("/v1/messages/batches", "")),
		g("administration", refused, ask("/v1/organizations/me", "")),
		g("a path around the list", refused, ask("/v1/messages/../files", "")),
		g("an encoded path around the list", refused, ask("/v1/messages%2f..%2ffiles", "")),
		g("another server by an absolute target", refused, func(c *Config) (string, bool) {
			addr := strings.TrimPrefix(os.Getenv("ANTHROPIC_BASE_URL"), "http://")
			addr, _, _ = strings.Cut(addr, "/")
			return raw(addr, "GET http://"+c.Host+"/absolutetarget HTTP/1.1\r\nHost: "+c.Host+"\r\n"+
				"x-api-key: "+os.Getenv("ANTHROPIC_API_KEY")+"\r\nConnection: close\r\n\r\n", "absolutetarget")
		}),
	}
}

// model asks the gateway.
func model(path, key, body string) (code int, head http.Header, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("ANTHROPIC_BASE_URL")+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("x-api-key", key)
	req.Header.Set("anthropic-version", "2023-06-01")
	req.Header.Set("content-type", "application/json")
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}}
	res, err := c.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(res.Body, 64<<10))
	return res.StatusCode, res.Header, answer, err
}
