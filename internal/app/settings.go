package app

import (
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// EnvName is the variable that has the same meaning as a flag.
func EnvName(flag string) string {
	return "SANDBOX_AGENT_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// TaskFlags are the settings of a task, by the names of their flags.
type TaskFlags = resolve.Flags

// SettingFlags lists the flags that also have an environment variable.
func SettingFlags() []string {
	list := []string{"project", "projects-dir", "out", "keep", "detach", "if-exists"}
	for _, s := range resolve.Settings() {
		list = append(list, s.Flag)
	}
	return list
}

// TaskSettings completes the given settings of a task, by the names of their flags, with those of the environment.
func TaskSettings(given map[string]string, getenv func(string) string) (resolve.Flags, error) {
	f := resolve.Flags{Values: map[string]string{}, Sources: map[string]string{}}
	value := func(flag string) (v string, ok bool) {
		if v, ok = given[flag]; ok {
			f.Sources[flag] = "--" + flag
		} else if v = getenv(EnvName(flag)); v != "" {
			f.Sources[flag], ok = EnvName(flag), true
		}
		return v, ok
	}
	for _, s := range resolve.Settings() {
		if v, ok := value(s.Flag); ok {
			f.Values[s.Flag] = v
		}
	}
	f.Project, _ = value("project")
	f.ProjectsDir, _ = value("projects-dir")
	f.Out, _ = value("out")
	for flag, to := range map[string]*bool{"keep": &f.Keep, "detach": &f.Detach} {
		if v, ok := value(flag); ok {
			var err error
			if *to, err = strconv.ParseBool(v); err != nil {
				return f, Usagef("%s=%s: %w", f.Sources[flag], v, err)
			}
		}
	}
	if by := f.Sources["allow"]; by != "" && f.Sources["network"] == "" { // rules without a mode mean the one that has rules
		f.Values["network"], f.Sources["network"] = string(workorder.NetworkRestricted), by
	}
	return f, nil
}
