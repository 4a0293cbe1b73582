package detect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Finding is one value of a draft, as a person or a program reads it.
type Finding struct {
	Key   string `json:"key"` // of the project file, such as validate.test
	Value string `json:"value"`
	Position
}

// Findings lists the values of a draft, in the order of the project file.
func (d *Draft) Findings() (all []Finding) {
	add := func(key, value string, at Position) { all = append(all, Finding{key, value, at}) }
	for _, t := range d.Tools {
		add("tools."+t.Name, t.Version, t.At)
	}
	for _, p := range d.Packages {
		add("packages", p.Text, p.At)
	}
	if d.Browser.File != "" {
		add("browser", "true", d.Browser)
	}
	for _, s := range d.Services {
		add("services."+s.Name, s.Image, s.At)
	}
	for _, v := range d.Env {
		add("env."+v.Name, v.Value, v.At)
	}
	for _, s := range d.Setup {
		add("setup", s.Text, s.At)
	}
	for _, c := range d.Validate {
		add("validate."+c.Name, c.Command, c.At)
	}
	if d.Dev != nil {
		add("dev", fmt.Sprintf("%s (port %d)", d.Dev.Command, d.Dev.Port), d.Dev.At)
	}
	return all
}

// Report is what was found in a repository, for programs.
type Report struct {
	Findings []Finding `json:"findings"`
	// Omitted are the parts that were recognized and not used.
	Omitted []Omitted `json:"omitted,omitempty"`
	// Suggested are checks that no run takes by itself.
	Suggested []Finding `json:"suggested,omitempty"`
}

// Report returns the findings and omissions of a draft.
func (d *Draft) Report() *Report {
	r := &Report{Findings: d.Findings(), Omitted: d.Omitted}
	for _, c := range d.Suggested {
		r.Suggested = append(r.Suggested, Finding{"validate." + c.Name, c.Command, c.At})
	}
	return r
}

var testName = lazyregexp.New(`(?:^|-)test(?:-|$)`)

// HasTest reports whether a check of the draft runs tests.
func (d *Draft) HasTest() bool {
	return slices.ContainsFunc(d.Validate, func(c Check) bool { return testName.MatchString(c.Name) })
}

// Sources are the files that the findings come from, in the order of their first finding.
func (d *Draft) Sources() (files []string) {
	for _, f := range d.Findings() {
		if !slices.Contains(files, f.File) {
			files = append(files, f.File)
		}
	}
	return files
}

func (f Finding) String() string {
	return fmt.Sprintf("%s: %s (%s)", f.Key, text.Printable(strings.ReplaceAll(f.Value, "\n", "; ")), f.Position)
}
