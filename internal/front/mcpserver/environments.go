package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// briefing is what a client tells its model of the environments.
const briefing = "The environment_* tools give you sandboxes of the user's repository, called environments. " +
	"Do all work on the repository in one: files by environment_file_*, commands by environment_run_cmd. " +
	"Do not touch the user's own files, and do not run git or shell commands for this work outside of an environment.\n" +
	"- Begin with environment_create, or environment_open if the user names an environment. " +
	"Its answer has the id, which the other tools need. " +
	"Keep to that one; do not switch to another without the user's permission.\n" +
	"- Inside, the repository is at " + sandbox.CloneDir + ". Commands begin there and relative paths are below it. " +
	"Paths of the user's machine do not exist inside: never cd to them.\n" +
	"- An environment begins at a commit; what the user has not committed is not in it.\n" +
	"- Each change is committed by itself to the branch sandbox/ID in the user's repository. " +
	"You need no git commit, and what git ignores or is outside of " + sandbox.CloneDir + " is not kept.\n" +
	"- The user looks at the work with: sandbox-agent log ID, sandbox-agent diff ID, sandbox-agent checkout ID; " +
	"and takes it with: sandbox-agent merge ID. Tell the user the id and these commands when you are done."

// oneAtATime is said where a model sees several.
const oneAtATime = "Warning: do not work in another environment than your own unless the user has said so: others may be at work there."

// Sandboxes are sandboxes of one repository, each with a branch. An error of what an agent has asked for is a WrongError.
type Sandboxes interface {
	Create(ctx context.Context, q SandboxRequest) (SandboxInfo, error)
	List(ctx context.Context) ([]SandboxInfo, error)
	// Open finds one, to be used until Close. The error of an unknown one names those that there are.
	Open(ctx context.Context, id string) (Sandbox, error)
}

// Sandbox is one. Whatever it changes is saved when a call of it returns.
type Sandbox interface {
	Info(ctx context.Context) (SandboxInfo, error)
	Run(ctx context.Context, c SandboxCommand) (SandboxResult, error)
	Files
	// Update changes the title.
	Update(ctx context.Context, title string) (SandboxInfo, error)
	// Rebuild recreates the sandbox and keeps the work.
	Rebuild(ctx context.Context, c SandboxConfig) (SandboxInfo, error)
	Checkpoint(ctx context.Context, name string) (SandboxCheckpoint, error)
	Log(ctx context.Context) (string, error)
	Diff(ctx context.Context) (string, error)
	// Turn keeps others, of other programs too, from changing it by several steps at the same time, until done.
	Turn(ctx context.Context) (done func(), err error)
	Close(ctx context.Context)
}

// Files are those of an environment. A path is absolute, or below the work directory.
type Files interface {
	// Read is a file of at most most bytes.
	Read(ctx context.Context, path string, most int64) ([]byte, error)
	List(ctx context.Context, path string) ([]SandboxFile, error)
	// Write makes content that of a file; subject says so in the commit.
	Write(ctx context.Context, path string, content []byte, subject string) (SandboxChange, error)
	Delete(ctx context.Context, path string) (SandboxChange, error)
}

// SandboxRequest is what an agent asks for.
type SandboxRequest struct {
	Title string
	Ref   string // that it begins at
}

// SandboxInfo is what is known of one.
type SandboxInfo struct {
	ID      string `json:"id"`
	Title   string `json:"title"`
	State   string `json:"state,omitempty"`
	Branch  string `json:"branch,omitempty"`
	Workdir string `json:"workdir,omitempty"`
	Updated string `json:"updated,omitempty"`
	// Endpoints are by port.
	Endpoints map[string]SandboxEndpoint `json:"endpoints,omitempty"`
	Notes     []string                   `json:"notes,omitempty"`
}

// SandboxEndpoint is where something listens.
type SandboxEndpoint struct {
	Inside string `json:"environment_internal"`
	Host   string `json:"host_external,omitempty"`
}

// Shell is one of sandbox.Shells, or "" for the first.
type Shell string

// SandboxCommand is a script for a shell.
type SandboxCommand struct {
	Command     string  `json:"command"`
	Shell       Shell   `json:"shell,omitempty"`
	Background  bool    `json:"background,omitempty"`
	Ports       []int   `json:"ports,omitempty"`
	Timeout     float64 `json:"timeout,omitempty" jsonschema:"seconds"`
	Explanation string  `json:"explanation,omitempty"`
}

// SandboxResult is how it ended, or of one in the background that it runs.
type SandboxResult struct {
	Stdout    string                     `json:"stdout"`
	Stderr    string                     `json:"stderr"`
	ExitCode  int                        `json:"exit_code"`
	Endpoints map[string]SandboxEndpoint `json:"endpoints"`
	TimedOut  bool                       `json:"timed_out,omitempty"`
	Commit    string                     `json:"commit,omitempty"`
	Notes     []string                   `json:"notes,omitempty"`
}

// SandboxFile is a row of a directory's list.
type SandboxFile struct {
	Name string `json:"name"`
	Type string `json:"type"` // file, directory, link or other
	Size int64  `json:"size,omitempty"`
}

// SandboxChange is the outcome of a changed file.
type SandboxChange struct {
	Commit string   `json:"commit,omitempty"` // "": nothing is new in the branch
	Notes  []string `json:"notes,omitempty"`
}

// SandboxConfig is the configuration of which an environment is recreated. Unnamed settings stay.
type SandboxConfig struct {
	BaseImage     string              `json:"base_image,omitempty"`
	Env           map[string]*string  `json:"env,omitempty"` // null removes a variable
	SetupCommands *[]string           `json:"setup_commands,omitempty"`
	Network       sandbox.NetworkMode `json:"network,omitempty"`
	Allow         []string            `json:"allow,omitempty"`
	Service       *SandboxService     `json:"-"` // one more
}

// SandboxService is a service beside an environment, reached inside by its name.
type SandboxService struct {
	Name    string            `json:"name"`
	Image   string            `json:"image"`
	Command []string          `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Ports   []int             `json:"ports,omitempty"`
}

// SandboxCheckpoint is what a checkpoint has kept.
type SandboxCheckpoint struct {
	Commit   string   `json:"commit"`
	Tag      string   `json:"tag"`                // in the repository that the user's remote sandbox names
	Snapshot string   `json:"snapshot,omitempty"` // its name, as `snapshot list` has it
	Notes    []string `json:"notes,omitempty"`
}

// explained is what all tools have: why the agent calls it. Only a command's goes anywhere.
type explained struct {
	Explanation string `json:"explanation,omitempty"`
}

// target is what all tools on an environment have.
type target struct {
	ID string `json:"environment_id"`
	explained
}

func (t *target) id() *string { return &t.ID }

func (*configArguments) rebuilds()  {}
func (*serviceArguments) rebuilds() {}

// Kinds of arguments, in addition to SandboxCommand and SandboxService.
type (
	createArguments struct {
		explained
		Title        string `json:"title" jsonschema:"what it is for"`
		Ref          string `json:"from_git_ref,omitempty" jsonschema:"branch, tag or commit; default: what the user has checked out"`
		AllowReplace bool   `json:"allow_replace,omitempty"`
	}
	// openArguments always need an ID, also where a client works in one environment at a time.
	openArguments   struct{ target }
	updateArguments struct {
		target
		Title string `json:"title"`
	}
	configArguments struct {
		target
		Config SandboxConfig `json:"config"`
	}
	commandArguments struct {
		target
		SandboxCommand
	}
	serviceArguments struct {
		target
		SandboxService
	}
	checkpointArguments struct {
		target
		Name string `json:"name"`
	}
)

// addSandboxTools adds the fifteen tools.
func (s *Server) addSandboxTools() {
	looks := &mcp.ToolAnnotations{ReadOnlyHint: true}
	tool := func(name, description string, hints *mcp.ToolAnnotations) *mcp.Tool {
		return &mcp.Tool{Name: "environment_" + name, Description: description, Annotations: hints}
	}
	add(s, tool("create", "Make an environment: a sandbox with a clone of the user's repository, and a branch. "+
		"Uncommitted changes of the user are not in it.", nil), s.createSandbox)
	add(s, tool("open", "Work in an environment that is there.", looks), s.openSandbox)
	add(s, tool("list", "List the environments of the repository.", looks), s.listSandboxes)
	add(s, tool("update", "Change an environment's title.", nil), on(s, s.update))
	add(s, tool("config", "Recreate an environment with another configuration. "+
		"Commits stay; other files and background commands are lost.", nil), on(s, s.config))
	add(s, tool("run_cmd", "Run a command in an environment. What it changes is committed, unless it is in the background: "+
		"that needs ports at which it listens to be waited for.", nil), on(s, s.command))
	add(s, tool("file_read", "Read a text file, or lines of it, counted from 1.", looks), on(s, s.readFile))
	add(s, tool("file_list", "List a directory.", looks), on(s, s.listFiles))
	add(s, tool("file_write", "Write a whole file.", nil), on(s, s.writeFile))
	add(s, tool("file_edit", "Replace a text of a file. "+
		"Where it is there several times, the answer lists them by id for which_match.", nil), on(s, s.editFile))
	add(s, tool("file_delete", "Delete a file.", nil), on(s, s.deleteFile))
	add(s, tool("add_service", "Add a service, such as a database, reachable by its name. "+
		"This recreates the environment, as environment_config does.", nil), on(s, s.service))
	add(s, tool("checkpoint", "Keep the environment's state under a name.", nil), on(s, s.checkpoint))
	add(s, tool("log", "Show an environment's commits, with the commands that were run.", looks),
		on(s, func(ctx context.Context, e Sandbox, _ *target) (*mcp.CallToolResult, error) { return said(e.Log(ctx)) }))
	add(s, tool("diff", "Show what an environment has changed since it began.", looks),
		on(s, func(ctx context.Context, e Sandbox, _ *target) (*mcp.CallToolResult, error) { return said(e.Diff(ctx)) }))
}

// on is a tool on an environment. Its answer ends with the commands by which the user looks at the work.
func on[A any, P interface {
	*A
	id() *string
}](s *Server, do func(context.Context, Sandbox, P) (*mcp.CallToolResult, error),
) func(context.Context, string, P) (*mcp.CallToolResult, error) {
	return func(ctx context.Context, client string, a P) (*mcp.CallToolResult, error) {
		id := a.id()
		if *id == "" && s.o.Single {
			if *id = s.currentOf(client); *id == "" {
				return nil, invalid(errors.New("there is no environment yet: environment_create makes one"))
			}
		}
		if sandbox.ValidName(*id) { // of what is none nothing is remembered
			_, alone := any(a).(interface{ rebuilds() })
			done, err := s.usedBriefly(ctx, *id, alone)
			if err != nil {
				return failed(err), nil
			}
			defer done()
		}
		e, err := s.o.Sandboxes.Open(ctx, *id)
		if err != nil {
			return answer(err)
		}
		defer e.Close(ctx)
		res, err := do(ctx, e, a)
		if err != nil {
			if res, err = answer(err); err != nil {
				return nil, err
			}
		}
		return withCommands(res, *id), nil
	}
}

// answer is that of a call that failed. Where an engine does not answer, it is not known whether the call is wrong.
func answer(err error) (*mcp.CallToolResult, error) {
	if _, already := errors.AsType[*jsonrpc.Error](err); already {
		return nil, err
	}
	if _, wrong := errors.AsType[*WrongError](err); wrong ||
		errors.Is(err, sandbox.ErrInvalidSpec) && !errors.Is(err, sandbox.ErrUnavailable) {
		return nil, invalid(err)
	}
	return failed(err), nil
}

// withCommands adds the commands of a person to an answer.
func withCommands(res *mcp.CallToolResult, id string) *mcp.CallToolResult {
	lines := []string{"The user looks at this work with:"}
	for _, verb := range []string{"log", "diff", "checkout"} {
		lines = append(lines, "sandbox-agent "+verb+" "+id)
	}
	res.Content = append(res.Content, &mcp.TextContent{Text: strings.Join(lines, "\n")})
	return res
}

// said is a result that is a text.
func said(s string, err error) (*mcp.CallToolResult, error) {
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.ToValidUTF8(s, "\uFFFD")}}}, nil
}

func (s *Server) currentOf(client string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current[client]
}

func (s *Server) setCurrent(client, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current[client] = id
}

func (s *Server) createSandbox(ctx context.Context, client string, a *createArguments) (*mcp.CallToolResult, error) {
	if strings.TrimSpace(a.Title) == "" {
		return nil, invalid(errors.New("arguments: title is needed"))
	}
	if s.o.Single {
		done, err := s.used(ctx, " "+client, true) // two at once would both find none
		if err != nil {
			return failed(err), nil
		}
		defer done()
		if has := s.currentOf(client); has != "" && !a.AllowReplace {
			e, err := s.o.Sandboxes.Open(ctx, has)
			if err == nil {
				e.Close(ctx)
				return withCommands(failed(fmt.Errorf("you work in environment %s: go on there, or ask the user whether another may "+
					"take its place, and then say so by allow_replace", has)), has), nil
			}
			if _, gone := errors.AsType[*WrongError](err); !gone {
				return answer(err)
			}
		}
	}
	i, err := s.o.Sandboxes.Create(ctx, SandboxRequest{Title: a.Title, Ref: a.Ref})
	if err != nil {
		return answer(err)
	}
	s.setCurrent(client, i.ID)
	res, err := document(i, nil)
	if err != nil {
		return nil, err
	}
	return withCommands(res, i.ID), nil
}

func (s *Server) openSandbox(ctx context.Context, client string, a *openArguments) (*mcp.CallToolResult, error) {
	return on(s, func(ctx context.Context, e Sandbox, _ *openArguments) (*mcp.CallToolResult, error) {
		i, err := e.Info(ctx)
		if err == nil {
			s.setCurrent(client, i.ID)
		}
		return document(i, err)
	})(ctx, client, a)
}

func (s *Server) listSandboxes(ctx context.Context, client string, _ *explained) (*mcp.CallToolResult, error) {
	all, err := s.o.Sandboxes.List(ctx)
	if err != nil {
		return answer(err)
	}
	res, err := document(struct {
		Environments []SandboxInfo `json:"environments"`
		Current      string        `json:"current,omitempty"`
	}{all, s.currentOf(client)}, nil)
	if err != nil {
		return nil, err
	}
	res.Content = append(res.Content, &mcp.TextContent{Text: oneAtATime})
	return res, nil
}

func (s *Server) update(ctx context.Context, e Sandbox, a *updateArguments) (*mcp.CallToolResult, error) {
	if strings.TrimSpace(a.Title) == "" {
		return nil, &WrongError{errors.New("arguments: title is needed")}
	}
	return document(e.Update(ctx, a.Title))
}

func (s *Server) config(ctx context.Context, e Sandbox, a *configArguments) (*mcp.CallToolResult, error) {
	c := a.Config
	if c.BaseImage == "" && len(c.Env) == 0 && c.SetupCommands == nil && c.Network == "" && len(c.Allow) == 0 {
		return nil, &WrongError{errors.New("arguments: config has nothing to change: base_image, env, setup_commands, network, allow")}
	}
	return document(e.Rebuild(ctx, c))
}

func (s *Server) service(ctx context.Context, e Sandbox, a *serviceArguments) (*mcp.CallToolResult, error) {
	if a.Name == "" || a.Image == "" {
		return nil, &WrongError{errors.New("arguments: name and image are needed")}
	}
	return document(e.Rebuild(ctx, SandboxConfig{Service: &a.SandboxService}))
}

// maxTimeout is of a command, in seconds.
const maxTimeout = 3600

func (s *Server) command(ctx context.Context, e Sandbox, a *commandArguments) (*mcp.CallToolResult, error) {
	switch {
	case strings.TrimSpace(a.Command) == "":
		return nil, &WrongError{errors.New("arguments: command is needed")}
	case a.Shell != "" && !slices.Contains(sandbox.Shells, string(a.Shell)):
		return nil, &WrongError{fmt.Errorf("shell %.40q: use %s", a.Shell, strings.Join(sandbox.Shells, ", "))}
	case a.Timeout < 0 || a.Timeout > maxTimeout:
		return nil, &WrongError{fmt.Errorf("timeout %g: use 1 to %d seconds", a.Timeout, maxTimeout)}
	}
	r, err := e.Run(ctx, a.SandboxCommand)
	if err != nil {
		return nil, err
	}
	r.Stdout, r.Stderr = strings.ToValidUTF8(r.Stdout, "\uFFFD"), strings.ToValidUTF8(r.Stderr, "\uFFFD")
	if r.Endpoints == nil {
		r.Endpoints = map[string]SandboxEndpoint{}
	}
	res, err := document(r, nil)
	if err != nil {
		return nil, err
	}
	res.IsError = r.ExitCode != 0
	return res, nil
}

func (s *Server) checkpoint(ctx context.Context, e Sandbox, a *checkpointArguments) (*mcp.CallToolResult, error) {
	if !sandbox.ValidName(a.Name) {
		return nil, &WrongError{fmt.Errorf("name %.80q: use letters a–z, digits, - and _, a letter or digit first, 63 at most", a.Name)}
	}
	done, err := e.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return document(e.Checkpoint(ctx, a.Name))
}

// begin is the beginning of a text as a model gets it: valid, and of most bytes.
func begin(s string, most int) string {
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) <= most {
		return s
	}
	return text.Prefix(s, most)
}
