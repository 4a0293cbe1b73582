package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/sandbox-agent/sandbox-agent/internal/agentkind"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var opencodeCLI = agentkind.Of(agentkind.Opencode)

type opencode struct{ session conversation }

var (
	_ Resumer   = (*opencode)(nil)
	_ Notifier  = (*opencode)(nil)
	_ BusyIdler = (*opencode)(nil)
)

func (*opencode) Name() string { return workorder.HarnessOpencode }

// BusyProcess is opencode itself: version 1.18 uses 0.5 to 20 % of a core while it waits for a command.
func (*opencode) BusyProcess() string { return opencodeCLI.Program() }

// opencodeOurs are the flags that this adapter depends on.
var opencodeOurs = []string{
	"--format", "-m", "--model", "-c", "--continue", "-s", "--session", "--fork", "--attach", "--dir", "--command",
	"-i", "--interactive", "--share",
}

// opencodeConfig is the variable with the configuration that overrides the repository's.
const opencodeConfig = "OPENCODE_CONFIG_CONTENT"

func (h *opencode) Command(in Input) (Invocation, error) { return h.command(in, "") }

// Resume continues the session from the CLI's own record.
func (h *opencode) Resume(in Input) (Invocation, error) {
	id := h.session.name()
	if id == "" {
		return Invocation{}, errors.New("harness opencode: it was stopped before it had a session")
	}
	return h.command(in, id)
}

func (*opencode) command(in Input, session string) (Invocation, error) {
	spec := in.Order.Harness
	if err := checkArgs(workorder.HarnessOpencode, spec, opencodeOurs); err != nil {
		return Invocation{}, err
	}
	if envValue(in.Env, opencodeConfig) != "" {
		return Invocation{}, fmt.Errorf(
			"harness opencode: %s is reserved for the runner: put your settings into opencode.json of the repository", opencodeConfig,
		)
	}
	model, providers, err := opencodeModel(in)
	if err != nil {
		return Invocation{}, err
	}
	config, err := opencodeSettings(in, model, providers)
	if err != nil {
		return Invocation{}, err
	}
	// Without a title it requests one from a model, and its stream does not report that call.
	argv := append(slices.Clone(opencodeCLI.Task), "--title", in.Order.TaskID)
	if model != "" {
		argv = append(argv, "--model", model)
	}
	if session != "" {
		argv = append(argv, "--session", session)
	}
	env := append([]string{opencodeConfig + "=" + config}, opencodeCLI.Env...)
	if key := envValue(in.Env, agentkind.CodexKey); envValue(in.Env, agentkind.OpenAIKey) == "" && key != "" {
		env = append(env, agentkind.OpenAIKey+"="+key)
	}
	return Invocation{
		Argv: append(argv, spec.Args...), Env: env,
		// Neither SIGTERM nor SIGINT makes it print more; SIGTERM is the one that it never ignores.
		Stop: []syscall.Signal{syscall.SIGTERM},
	}, nil
}

// provider is a provider of opencode for which the box has a key.
type provider struct {
	name, key string
	api       workorder.ModelAPI
}

var opencodeProviders = []provider{
	{"openai", agentkind.OpenAIKey, workorder.APIOpenAI},
	{"anthropic", agentkind.AnthropicKey, workorder.APIAnthropic},
}

// opencodeModel returns the model as provider/model, and the providers that it may use. An empty model is the CLI's choice.
func opencodeModel(in Input) (model string, use []provider, err error) {
	for _, p := range opencodeProviders {
		if envValue(in.Env, p.key) != "" || p.api == workorder.APIOpenAI && envValue(in.Env, agentkind.CodexKey) != "" {
			use = append(use, p)
		}
	}
	model = in.Order.Harness.Model
	named, _, has := strings.Cut(model, "/")
	known := slices.ContainsFunc(opencodeProviders, func(p provider) bool { return p.name == named })
	switch {
	case has && !known:
		// Configured in the repository, with its own key.
		return model, append(use, provider{name: named}), nil
	case len(use) == 0, has && !slices.ContainsFunc(use, func(p provider) bool { return p.name == named }):
		return "", nil, errors.New("harness opencode: no model key: add the secret OPENAI_API_KEY or ANTHROPIC_API_KEY to the project " +
			"(secrets: {OPENAI_API_KEY: env://OPENAI_API_KEY}) and set it where you run the command; " +
			"or name a provider in harness.model (provider/model) that the repository's opencode.json configures")
	case has || model == "":
		return model, use, nil
	}
	p := use[0]
	if last := use[len(use)-1]; strings.HasPrefix(model, "claude") {
		p = last
	}
	return p.name + "/" + model, use, nil
}

// opencodeSettings override a repository's opencode.json, which could otherwise send the key to any server.
func opencodeSettings(in Input, model string, use []provider) (string, error) {
	providers, names := map[string]any{}, []string{}
	for _, p := range use {
		names = append(names, p.name)
		if p.api == "" {
			continue
		}
		base := p.api.VersionedURL(envValue(in.Env, p.api.BaseURLVariable()))
		settings := map[string]any{"options": map[string]any{"baseURL": base}}
		if id, ok := strings.CutPrefix(model, p.name+"/"); ok {
			// A model missing from its built-in list must be declared; known ones are unaffected.
			settings["models"] = map[string]any{id: map[string]any{}}
		}
		providers[p.name] = settings
	}
	config := map[string]any{"autoupdate": false, "share": "disabled", "enabled_providers": names, "provider": providers}
	if in.NoticeFile != "" {
		// Read again before each model call, and harmless while the file does not exist.
		config["instructions"] = []string{in.NoticeFile}
	}
	b, err := json.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("harness opencode: write configuration: %w", err)
	}
	return string(b), nil
}

// Notice returns the text; it is part of the model's instructions from its next call on.
func (*opencode) Notice(_ Input, text string) ([]byte, error) { return []byte(text + "\n"), nil }

func (h *opencode) Parser(in Input) Parser {
	return &opencodeParser{session: &h.session, version: in.Order.Harness.Version, model: in.Order.Harness.Model}
}

// checkArgs rejects arguments that the adapter sets itself.
func checkArgs(name string, spec workorder.Harness, ours []string) error {
	if len(spec.Command) > 0 {
		return fmt.Errorf("harness %s: harness.command is only for the command harness: remove it or use harness.args", name)
	}
	for _, a := range spec.Args {
		flag, _, _ := strings.Cut(a, "=")
		if slices.Contains(ours, flag) {
			return fmt.Errorf("harness %s: harness.args must not contain %s: the runner sets it", name, flag)
		}
	}
	return nil
}
