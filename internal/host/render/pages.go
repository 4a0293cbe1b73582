package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// pagePictures is the folder of the runner's pictures, relative to the result's folder. A summary counts them by page and does
// not list them.
const pagePictures = workorder.EvidenceDir + "/pages"

// pages lists the pages of the development server that changed.
func (s *summary) pages(r *workorder.Result) {
	if r.Proof == nil {
		return
	}
	var paths []string
	at := map[string][]string{}
	for _, p := range r.Proof.Pages {
		if !slices.Contains(paths, p.Path) {
			paths = append(paths, p.Path)
		}
		at[p.Path] = append(at[p.Path], fmt.Sprintf("%s at %d px", changed(p)+refused(p.Head), p.Width))
	}
	for i, p := range paths {
		if i == s.most() {
			s.row("", fmt.Sprintf("and %d more pages", len(paths)-i))
			break
		}
		s.row(label(i, "pages"), words(oneLine(p), strings.Join(at[p][:min(len(at[p]), s.most())], ", ")))
	}
	if len(paths) > 0 {
		s.row("", s.path(pagePictures))
	}
}

func changed(p workorder.PageProof) string {
	switch {
	case p.Head == nil || p.Head.Error != "":
		return "not seen"
	case p.Differs == nil:
		return "not compared"
	case *p.Differs <= 0:
		return "same"
	case *p.Differs < 0.001:
		return "differs by less than 0.1 %"
	}
	return fmt.Sprintf("differs by %.1f %%", min(*p.Differs, 1)*100)
}

// refused describes the last commit's answer for a page, if it is not a success.
func refused(v *workorder.PageView) string {
	if v == nil || v.Error != "" || v.Status <= 0 || v.Status >= 200 && v.Status < 300 {
		return ""
	}
	return fmt.Sprintf(" (HTTP %d)", v.Status)
}

// further is the evidence beside the pages' pictures.
func further(all []workorder.Evidence) []workorder.Evidence {
	return slices.DeleteFunc(slices.Clone(all), func(e workorder.Evidence) bool { return strings.HasPrefix(e.Path, pagePictures+"/") })
}
