package workorder

import "slices"

// Parts of the default image that only some boxes need. The agents are parts under their harnesses' names.
const (
	PartSupabase = "supabase" // its CLI
	PartBrowser  = "browser"  // Chromium, ffmpeg and agent-browser
)

// Parts returns the parts of the default image that a box with these harnesses needs, sorted.
func Parts(supabase, browser bool, harnesses ...string) (parts []string) {
	for _, name := range harnesses {
		if name != "" && name != HarnessCommand {
			parts = append(parts, name)
		}
	}
	if supabase {
		parts = append(parts, PartSupabase)
	}
	if browser {
		parts = append(parts, PartBrowser)
	}
	slices.Sort(parts)
	return slices.Compact(parts)
}
