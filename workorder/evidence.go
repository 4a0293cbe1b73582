package workorder

import (
	"path"
	"slices"
)

// EvidencePaths lists the files in the result's directory that a reviewer may want to see: pictures, videos, logs of checks.
func (r *Result) EvidencePaths() []string {
	var paths []string
	for _, e := range r.Evidence {
		if e.Kind == EvidenceScreenshot || e.Kind == EvidenceVideo {
			paths = append(paths, e.Path)
		}
	}
	for _, v := range r.Validation {
		paths = append(paths, v.Log)
	}
	if r.Proof != nil {
		for _, c := range r.Proof.Checks {
			for _, run := range []*CheckRun{c.Base, c.Head} {
				if run != nil {
					paths = append(paths, run.Log)
				}
			}
		}
		for _, p := range r.Proof.Pages {
			paths = append(paths, p.Diff)
			for _, v := range []*PageView{p.Base, p.Head} {
				if v != nil {
					paths = append(paths, v.Picture)
				}
			}
		}
	}
	paths = slices.DeleteFunc(paths, func(p string) bool { return p == "" })
	slices.Sort(paths)
	return slices.Compact(paths)
}

// EvidenceKept reports whether the commit EvidenceSHA has a file of the result's directory.
func (r *Result) EvidenceKept(file string) bool {
	return r.EvidenceSHA != "" && file == path.Clean(file) &&
		slices.Contains(r.EvidencePaths(), file) && !slices.Contains(r.EvidenceLeft, file)
}
