package trust

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func parse(t *testing.T, dir, yaml string) *projects.Project {
	t.Helper()
	p, err := projects.Parse(filepath.Join(dir, projects.DefaultFile), []byte("name: x\n"+yaml), projects.LoadOptions{Dir: dir, Home: "/home/me"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAsks(t *testing.T) {
	const command = "harness: {name: command, command: ./agent.sh}\n"
	for name, c := range map[string]struct {
		yaml  string
		gives []string
		net   workorder.NetworkMode
		user  UserOverrides // beside that
		want  []string
	}{
		"its remote, a token for all servers":     {yaml: command + "repo: https://example.com/own.git\n", user: UserOverrides{Token: true}, want: []string{"repo"}},
		"… by SSH, whose forge gets it":           {yaml: command + "repo: git@example.com:own.git\n", user: UserOverrides{Token: true}, want: []string{"repo"}},
		"… which the user gives":                  {yaml: command + "repo: https://example.com/own.git\n", gives: []string{"repo"}, user: UserOverrides{Token: true}},
		"its remote, no such token":               {yaml: command + "repo: https://example.com/own.git\n", want: []string{"repo, unless shown"}},
		"its remote by SSH, no such token":        {yaml: command + "repo: git@example.com:own.git\n", want: []string{"repo, unless shown"}},
		"its folder, a token for all servers":     {yaml: command + "repo: .\n", user: UserOverrides{Token: true}},
		"a forge, a token for all servers":        {yaml: command + "repo: .\npr: {api_url: 'https://evil.example/api/v3', repository: a/b}\n", user: UserOverrides{Token: true}, want: []string{"pr.repository", "pr.api_url"}},
		"… whatever repository the user says":     {yaml: command + "repo: .\npr: {api_url: 'https://evil.example/api/v3', repository: a/b}\n", gives: []string{"repo"}, user: UserOverrides{Token: true, Repo: "https://evil.example/a/b"}, want: []string{"pr.api_url"}},
		"pull requests of a path":                 {yaml: command + "repo: .\npr: {api_url: 'https://example.com/api/v3', repository: a/b}\n", want: []string{"pr.repository"}},
		"pull requests of another repository":     {yaml: command + "repo: https://example.com/a/own.git\npr: {repository: a/private}\n", want: []string{"repo, unless shown", "pr.repository"}},
		"… than the user gives":                   {yaml: command + "repo: https://example.com/a/private\npr: {repository: a/private}\n", gives: []string{"repo"}, user: UserOverrides{Repo: "https://example.com/a/b"}, want: []string{"pr.repository"}},
		"… may give":                              {yaml: command + "repo: https://example.com/a/own.git\npr: {repository: a/own}\n", user: UserOverrides{AnyRepo: true}, want: []string{"repo, unless shown", "pr.repository"}},
		"… of a forge that is no GitHub":          {yaml: command + "repo: https://gitlab.com/a/own.git\npr: {api_url: 'https://ghe.example/api/v3'}\n", want: []string{"repo, unless shown", "pr.api_url"}},
		"pull requests of the one that is cloned": {yaml: command + "repo: git@example.com:a/own.git\npr: {repository: A/own, api_url: 'https://example.com/api/v3'}\n", want: []string{"repo, unless shown"}},
		"… on another server":                     {yaml: command + "repo: git@example.com:a/own.git\npr: {repository: a/own, api_url: 'https://ghe.example/api/v3'}\n", want: []string{"repo, unless shown", "pr.api_url"}},
		"objects of elsewhere":                    {yaml: command + "repo: .\n", user: UserOverrides{Borrows: []string{"/private/objects"}}, want: []string{"repo"}},
		"… whichever folder of it the user names": {yaml: command + "repo: .\n", gives: []string{"repo"}, user: UserOverrides{Borrows: []string{"/private/objects"}}, want: []string{"repo"}},
		"nothing":                               {yaml: "repo: .\nservices: {redis: {image: 'redis:7'}}\nlifecycle: {setup: [make]}\nnetwork: full\nlimits: {memory: 4g}\n", user: UserOverrides{MemoryBytes: 8 << 30}},
		"the harness's own key":                 {yaml: "secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY}\n"},
		"another of its keys":                   {yaml: "secrets: {ANTHROPIC_API_KEY: env://CLAUDE_CODE_OAUTH_TOKEN}\n"},
		"codex":                                 {yaml: "harness: codex\nsecrets: {CODEX_API_KEY: env://OPENAI_API_KEY}\n"},
		"opencode":                              {yaml: "harness: opencode\nsecrets: {OPENAI_API_KEY: env://OPENAI_API_KEY, ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY}\n"},
		"a key of other models":                 {yaml: "secrets: {OPENAI_API_KEY: env://OPENAI_API_KEY}\n", want: []string{"secrets.OPENAI_API_KEY"}},
		"a key of the agent's that is held":     {yaml: "secrets: {ANTHROPIC_API_KEY: {from: env://ANTHROPIC_API_KEY, for: agent}}\n", want: []string{"secrets.ANTHROPIC_API_KEY"}},
		"a key for the repository's own agent":  {yaml: command + "secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY}\n", want: []string{"secrets.ANTHROPIC_API_KEY"}},
		"a key to another server":               {yaml: "harness: opencode\nsecrets: {OPENAI_API_KEY: env://ANTHROPIC_API_KEY}\n", want: []string{"secrets.OPENAI_API_KEY"}},
		"another variable under a key's name":   {yaml: "secrets: {ANTHROPIC_API_KEY: env://AWS_SECRET_ACCESS_KEY}\n", want: []string{"secrets.ANTHROPIC_API_KEY"}},
		"a variable":                            {yaml: "secrets: {DB: env://DATABASE_URL}\n", want: []string{"secrets.DB"}},
		"a command of a tool":                   {yaml: "secrets: {ANTHROPIC_API_KEY: op://v/i/f}\n", want: []string{"secrets.ANTHROPIC_API_KEY"}},
		"a command":                             {yaml: "secrets: {ANTHROPIC_API_KEY: cmd://touch marker}\n", want: []string{"secrets.ANTHROPIC_API_KEY"}},
		"a file":                                {yaml: "secrets: {ANTHROPIC_API_KEY: file://~/.ssh/id_rsa}\n", want: []string{"secrets.ANTHROPIC_API_KEY"}},
		"a login of this machine":               {yaml: "secrets: {CLAUDE_CODE_OAUTH_TOKEN: login://claude-code}\n", want: []string{"secrets.CLAUDE_CODE_OAUTH_TOKEN"}},
		"a file, where its key is not set":      {yaml: "secrets: {ANTHROPIC_API_KEY: {any_of: [env://ANTHROPIC_API_KEY, 'file://~/.ssh/id_rsa']}}\n", want: []string{"secrets.ANTHROPIC_API_KEY"}},
		"either of its keys":                    {yaml: "secrets: {ANTHROPIC_API_KEY: {any_of: [env://ANTHROPIC_API_KEY, env://CLAUDE_CODE_OAUTH_TOKEN], optional: true}}\n"},
		"a key of another name":                 {yaml: "secrets: {LITELLM: env://LITELLM}\ngateway: {anthropic: {keys: [LITELLM]}}\n", want: []string{"secrets.LITELLM"}},
		"the key, to the file's server":         {yaml: "secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY}\ngateway: {anthropic: {base_url: 'https://evil.example'}}\n", want: []string{"gateway.anthropic.base_url"}},
		"the key, to a server by env":           {yaml: "secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY}\nenv: {ANTHROPIC_BASE_URL: 'https://evil.example'}\n", want: []string{"gateway.anthropic.base_url"}},
		"a server of this machine's network":    {yaml: command + "gateway: {openai: {base_url: 'http://host.docker.internal:11434'}}\n", want: []string{"gateway.openai.base_url"}},
		"prices":                                {yaml: "secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY}\ngateway: {prices: {m: {input: 0, output: 0}}}\n", want: []string{"gateway.prices"}},
		"how the box is held":                   {yaml: command + "isolation: privileged\noci_runtime: runc\nimage: mine:1\n", want: []string{"isolation", "oci_runtime", "image"}},
		"… which the user says":                 {yaml: command + "isolation: privileged\noci_runtime: runc\nimage: mine:1\n", gives: []string{"isolation", "oci_runtime", "image"}},
		"limits above the defaults":             {yaml: command + "limits: {memory: 900g, pids: 4097, cpus: 64, disk: 900g}\n", user: UserOverrides{MemoryBytes: 8 << 30}, want: []string{"limits.memory", "limits.pids"}},
		"limits of a machine not known":         {yaml: command + "limits: {memory: 64m, pids: 4096}\n", want: []string{"limits.memory"}},
		"limits up to the defaults":             {yaml: command + "limits: {memory: 8g, pids: 4096}\n", user: UserOverrides{MemoryBytes: 8 << 30}},
		"confined, said":                        {yaml: command + "isolation: confined\n"},
		"another repository":                    {yaml: command + "repo: https://example.com/private.git\n", want: []string{"repo"}},
		"… which the user says too":             {yaml: command + "repo: https://example.com/private.git\n", gives: []string{"repo"}},
		"rules, where the user restricts none":  {yaml: command + "network: {mode: restricted, allow: [evil.example], learn: true}\n"},
		"rules, where the user restricts":       {yaml: command + "network: {mode: restricted, allow: [evil.example], learn: true, dns: [192.0.2.1]}\n", net: workorder.NetworkRestricted, want: []string{"network.allow", "network.learn", "network.dns"}},
		"rules, where the user allows nothing":  {yaml: command + "network: {mode: restricted, allow: [evil.example]}\n", net: workorder.NetworkNone},
		"the provider's tools beside the rules": {yaml: "secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY}\ngateway: {provider_tools: true}\n", net: workorder.NetworkNone, want: []string{"gateway.provider_tools"}},
		"the provider's tools":                  {yaml: "secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY}\ngateway: {provider_tools: true}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := parse(t, "/clone", c.yaml)
			var keys []string
			u := c.user
			u.Gives, u.Network = func(key string) bool { return slices.Contains(c.gives, key) }, c.net
			u.Own = func(repo string) bool { return localrepo.Within(repo, "/clone") || strings.Contains(repo, "own.git") }
			for _, a := range Permissions(p, u) {
				key := a.Key
				if a.Claim {
					key += ", unless shown"
				}
				keys = append(keys, key)
				if a.Value == "" || a.Reason == "" {
					t.Errorf("says nothing: %+v", a)
				}
			}
			if !slices.Equal(keys, c.want) {
				t.Errorf("asks for %q, want %q", keys, c.want)
			}
		})
	}
}

func put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestSum: what can change without the file is part of what was said yes to.
func TestSum(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/.git/HEAD", "x")
	put(t, dir+"/tools/token.sh", "one")
	put(t, dir+"/one", "1")
	put(t, dir+"/two", "2")
	if err := os.Symlink("one", dir+"/key"); err != nil {
		t.Fatal(err)
	}
	const yaml = "secrets: {A: 'cmd://sh ./tools/token.sh --now', B: 'file://key', C: 'cmd://pass show x'}\n"
	sum := func(yaml string) string { return Sum(parse(t, dir, yaml)) }
	was := sum(yaml)
	if sum(yaml) != was {
		t.Fatal("the same content is not the same")
	}
	if sum(yaml+"#") == was {
		t.Error("the file changed")
	}
	put(t, dir+"/one", "other")
	put(t, dir+"/unnamed", "1")
	if sum(yaml) != was {
		t.Error("nothing changed that the file names: a secret's value is not its content")
	}
	put(t, dir+"/tools/token.sh", "two")
	changed := sum(yaml)
	if changed == was {
		t.Error("the script changed")
	}
	if err := os.Remove(dir + "/key"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("two", dir+"/key"); err != nil {
		t.Fatal(err)
	}
	if sum(yaml) == changed {
		t.Error("the link leads elsewhere")
	}
}

// TestSumOfPlace: the same file is the same from every folder, and so is what it names by another way.
func TestSumOfPlace(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/.git/HEAD", "x")
	put(t, dir+"/tools/token.sh", "one")
	put(t, dir+"/tools/tools/token.sh", "another")
	const yaml = "secrets: {A: 'cmd://sh tools/token.sh'}\n"
	was := Sum(parse(t, dir, yaml))
	for _, cwd := range []string{dir, dir + "/tools", t.TempDir()} {
		t.Chdir(cwd)
		if Sum(parse(t, dir, yaml)) != was {
			t.Errorf("another sum in %s", cwd)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if Sum(parse(t, link, yaml)) != was {
		t.Error("another sum by a link to the repository")
	}
}

// TestStage: commands run where nothing of the repository lies but the scripts that they name, as they were trusted.
func TestStage(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{".git/HEAD": "x", "Makefile": "x", "tools/token.sh": "one", "tools/lib.sh": "x", "app/p.sh": "two", "app/package.json": "{}"} {
		put(t, dir+"/"+name, content)
	}
	p := parse(t, dir+"/app", "secrets: {A: 'cmd://sh ../tools/token.sh', B: 'cmd://./p.sh && make -s token', C: 'cmd://sh "+dir+"/tools/token.sh'}\n")
	was := Sum(p)
	at, remove, err := Stage(p, was)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	top := filepath.Dir(at)
	err = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(top, path)
			c, rerr := os.ReadFile(path)
			got, err = append(got, rel+"="+string(c)), rerr
		}
		return err
	})
	if want := []string{"app/p.sh=two", "tools/token.sh=one"}; err != nil || !slices.Equal(got, want) || filepath.Base(at) != "app" {
		t.Errorf("%s has %q, want %q, %v", at, got, want, err)
	}
	remove()
	if _, err := os.Stat(top); !os.IsNotExist(err) {
		t.Errorf("it stays: %v", err)
	}
	put(t, dir+"/tools/token.sh", "other")
	if _, _, err := Stage(p, was); err == nil {
		t.Error("a script that changed after it was trusted")
	}
}

// TestManyLargeScripts: only so much of what commands name is read. What is beyond counts by its size and time, and cannot be run.
func TestManyLargeScripts(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/.git/HEAD", "x")
	var names []string
	for i := range maxScripts/maxScript + 1 {
		names = append(names, fmt.Sprintf("s%d", i))
		put(t, filepath.Join(dir, names[i]), "")
		if err := os.Truncate(filepath.Join(dir, names[i]), maxScript); err != nil {
			t.Fatal(err)
		}
	}
	put(t, dir+"/small", "x")
	p := parse(t, dir, "secrets: {A: 'cmd://cat "+strings.Join(names, " ")+" small'}\n")
	list, read := scripts(p), 0
	for _, s := range list {
		read += len(s.content)
	}
	if most := maxScripts + 1<<10; len(list) != len(names)+1 || read > most {
		t.Fatalf("%d files, %d bytes in memory, more than %d", len(list), read, most)
	}
	for _, s := range list {
		if whole := s.rel != names[len(names)-1] && s.rel != "small"; whole != (len(s.content) == maxScript) || whole != (s.mode != 0) {
			t.Errorf("%s: %d bytes, mode %s", s.rel, len(s.content), s.mode)
		}
	}
	was := Sum(p)
	put(t, dir+"/small", "other")
	if Sum(p) == was {
		t.Error("what is beyond the bound changed")
	}
}

func TestBook(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	s := Open(filepath.Join(state, "new"))
	file := filepath.Join(dir, "p.yaml")
	put(t, file, "x")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Lookup(file); e != nil || err != nil {
		t.Errorf("%+v, %v", e, err)
	}
	if list, err := s.List(); len(list) != 0 || err != nil {
		t.Errorf("%+v, %v", list, err)
	}
	if err := s.Trust(file, "1", []Permission{{Key: "k", Value: "v", Reason: "w"}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	e, err := s.Lookup(file)
	if err != nil || e == nil || e.Sum != "1" || len(e.Permissions) != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	if other, err := s.Lookup(filepath.Join(state, "p.yaml")); other != nil || err != nil {
		t.Errorf("the same name elsewhere: %+v, %v", other, err)
	}
	err = filepath.WalkDir(filepath.Join(state, "new", decisionsDir), func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil && fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is open to others: %s", p, fi.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if list, err := s.List(); len(list) != 1 || err != nil {
		t.Errorf("%+v, %v", list, err)
	}
	// By a link it is another's word, and that counts for as long as it leads where it did.
	by := filepath.Join(link, "p.yaml")
	if e, err := s.Lookup(by); e != nil || err != nil {
		t.Errorf("by a link: %+v, %v", e, err)
	}
	if err := s.Trust(by, "2", nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Lookup(by); err != nil || e == nil || e.Sum != "2" {
		t.Errorf("%+v, %v", e, err)
	}
	other := t.TempDir()
	put(t, other+"/p.yaml", "x")
	if err := errors.Join(os.Remove(link), os.Symlink(other, link)); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Lookup(by); e != nil || err != nil {
		t.Errorf("the link leads elsewhere: %+v, %v", e, err)
	}
	if e, err := s.Lookup(file); err != nil || e == nil || e.Sum != "1" {
		t.Errorf("%+v, %v", e, err)
	}
	for i, want := range []bool{true, false} {
		if there, err := s.Revoke(file); there != want || err != nil {
			t.Errorf("revoke %d: %v, %v", i+1, there, err)
		}
	}
	put(t, s.path(file), "{")
	if _, err := s.Lookup(file); err == nil {
		t.Error("a damaged one says nothing")
	}
}

func TestCovers(t *testing.T) {
	t.Parallel()
	e := Entry{Permissions: []Permission{{Key: "image", Value: "x"}}}
	for _, c := range []struct {
		asks []Permission
		want bool
	}{
		{nil, true},
		{[]Permission{{Key: "image", Value: "x", Reason: "another text"}}, true},
		{[]Permission{{Key: "image", Value: "y"}}, false},
		{[]Permission{{Key: "image", Value: "x"}, {Key: "network.allow", Value: "*.evil"}}, false},
	} {
		if got := e.Covers(c.asks); got != c.want {
			t.Errorf("%+v: %v", c.asks, got)
		}
	}
}
