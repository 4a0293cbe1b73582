package workorder

import (
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// toolNames is in the order of installation: dependencies come first.
var toolNames = []string{
	"node", "npm", "pnpm", "yarn", "bun", "deno", "go", "python", "uv", "poetry", "rust", "java", "maven", "gradle", "ruby", "php",
}

var toolVersion = lazyregexp.New(`^[A-Za-z0-9<>=~^*!][A-Za-z0-9.<>=~^*!+_ ,|/-]{0,60}$`)

// ToolNames returns the supported tools.
func ToolNames() []string { return slices.Clone(toolNames) }

// ValidTool reports whether a tool is supported.
func ValidTool(name string) bool { return slices.Contains(toolNames, name) }

// ValidToolVersion reports whether s is a version or a range of versions.
func ValidToolVersion(s string) bool { return toolVersion.MatchString(s) }

func (s *BoxSpec) checkTools(p *problems) {
	for name, version := range s.Tools {
		p.require(ValidTool(name), "tool %q is unknown", name)
		p.require(ValidToolVersion(version), "invalid version %q of tool %q", version, name)
	}
}
