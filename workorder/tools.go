package workorder

import (
	"regexp"
	"slices"
)

// toolNames are in the order in which a box installs them: what others run on comes first.
var toolNames = []string{
	"node", "npm", "pnpm", "yarn", "bun", "deno", "go", "python", "uv", "poetry", "rust", "java", "maven", "gradle", "ruby", "php",
}

var toolVersion = regexp.MustCompile(`^[A-Za-z0-9<>=~^*!][A-Za-z0-9.<>=~^*!+_ ,|/-]{0,60}$`)

// ToolNames are the tools that a box can be asked for.
func ToolNames() []string { return slices.Clone(toolNames) }

// ValidTool reports whether a box can be asked for a tool of that name.
func ValidTool(name string) bool { return slices.Contains(toolNames, name) }

// ValidToolVersion reports whether s can be a version, or a range of versions.
func ValidToolVersion(s string) bool { return toolVersion.MatchString(s) }

func (s *Spec) checkTools(c *check) {
	for name, version := range s.Tools {
		c.that(ValidTool(name), "tool %q is not known", name)
		c.that(ValidToolVersion(version), "version %q of tool %q is not valid", version, name)
	}
}
