package tree

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/agentkind"
)

// configPaths are the files that can make agents run programs, or ask for fewer permissions.
var configPaths = slices.Concat(agentkind.Settings, agentkind.Prompts)

// maxLinks bounds how many links of the base lead from one such file to the next.
const maxLinks = 8

// ConfigMatcher matches the paths of agents' settings: those of configPaths, and the targets of the base's links at such paths.
type ConfigMatcher map[string]string

// Has reports whether a path of the repository is a setting of agents.
func (g ConfigMatcher) Has(name string) bool {
	if configPath(name) {
		return true
	}
	for target, link := range g {
		if rest, ok := strings.CutPrefix(name, target); ok && (rest == "" || rest[0] == '/') && configPath(link+rest) {
			return true
		}
	}
	return false
}

// configPath reports whether a path is, or is below, one of configPaths, or is a file in place of their directory.
func configPath(name string) bool {
	for rest, more := name, true; more; _, rest, more = strings.Cut(rest, "/") {
		for _, p := range configPaths {
			p = strings.TrimSuffix(p, "/**")
			if rest == p || strings.HasPrefix(rest, p+"/") || strings.HasPrefix(p, rest+"/") {
				return true
			}
		}
	}
	return false
}

// NewConfigMatcher returns the guard for a base commit with the entries base, by path.
func (st *AgentConfig) NewConfigMatcher(ctx context.Context, base map[string]string) (ConfigMatcher, error) {
	g := ConfigMatcher{}
	done := map[string]bool{}
	for range maxLinks {
		more := false
		for name, entry := range base {
			id, link := strings.CutPrefix(entry, "120000 ")
			if !link || done[name] || !g.Has(name) {
				continue
			}
			done[name] = true
			target, err := st.Repos.Mirror().Output(ctx, "cat-file", "blob", id)
			if err != nil {
				return nil, err
			}
			to := path.Join(path.Dir(name), string(target))
			if path.IsAbs(string(target)) || to == "." || to == ".." || strings.HasPrefix(to, "../") {
				continue
			}
			// The target counts as the setting that the links start from.
			as := name
			if from, ok := g[name]; ok {
				as = from
			}
			g[to], more = as, true
		}
		if !more {
			break
		}
	}
	return g, nil
}
