package report

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"io"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxPicture and maxVideo bound an embedded file, in bytes.
	maxPicture = 3 << 20
	maxVideo   = 8 << 20
	// maxEmbedded bounds all of them together: a mail server still accepts 30 MB.
	maxEmbedded = 20 << 20
)

// picture is a group of screenshots of one page at one width.
type picture struct {
	Title string
	Shots []media // base, head, diff
	Note  string
}

type media struct {
	Name, Label, Note string
	Kind              string
	URL               string // on the forge
	Path              string // in the result's directory, clean and local; or empty
	Beside            string // its address as seen from the report; empty means the report lies elsewhere
	Width, Height     int
	Video             bool
	side              Side
}

// sides are the places of pictures in a group.
var sides = []struct {
	is    Side
	label string
}{{sideBase, "Before"}, {sideHead, "After"}, {sideDiff, "Difference"}, {sideNone, ""}}

func (p *page) pictures(d Data, r *workorder.Result, b bounds) {
	all := slices.Clone(d.Evidence)
	known := map[string]bool{}
	for _, e := range all {
		known[e.Path] = true
	}
	for _, e := range r.Evidence {
		if !known[e.Path] {
			all = append(all, EvidenceLink{Name: e.Name, Kind: e.Kind, Path: e.Path})
		}
	}
	all = fromPages(all, r.Proof)
	for i := range all {
		all[i].URL = cmp.Or(all[i].URL, d.evidence(all[i].Path))
	}
	of := func(e EvidenceLink) media {
		m := show(e, b)
		if d.ResultDir != "" && m.Path != "" {
			m.Beside = pathURL(path.Join(d.ResultDir, m.Path))
		}
		return m
	}
	var videos, files []EvidenceLink
	var groups []picture
	at := map[string]int{}
	for _, e := range all {
		switch e.Kind {
		case workorder.EvidenceScreenshot:
			title := line(cmp.Or(e.Group, e.Name), b.line)
			i, ok := at[title]
			if !ok {
				i = len(groups)
				at[title] = i
				groups = append(groups, picture{Title: title})
			}
			m := of(e)
			groups[i].Shots = append(groups[i].Shots, m)
			groups[i].Note = cmp.Or(groups[i].Note, m.Note)
		case workorder.EvidenceVideo:
			videos = append(videos, e)
		default:
			files = append(files, e)
		}
	}
	for i := range groups {
		slices.SortStableFunc(groups[i].Shots, func(x, y media) int { return sideRank(x.side) - sideRank(y.side) })
		groups[i].Shots = groups[i].Shots[:min(len(groups[i].Shots), len(sides))]
	}
	p.Pictures = firsts(groups, b.pics, func(g picture) picture { return g })
	p.Media = firsts(videos, b.pics, of)
	p.Files = firsts(files, b.items, of)
}

// evidence returns the valid address of a file on the forge, or "".
func (d *Data) evidence(file string) string {
	if d.EvidenceURL == nil || localPath(file) == "" {
		return ""
	}
	return webAddress(d.EvidenceURL(file))
}

func sideRank(s Side) int {
	for i, o := range sides {
		if o.is == s {
			return i
		}
	}
	return len(sides)
}

// maxPixels bounds the stated size of a picture.
const maxPixels = 20000

func show(e EvidenceLink, b bounds) media {
	m := media{
		Name: line(cmp.Or(e.Name, e.Path), b.line), Note: line(e.Note, b.line), Kind: line(e.Kind, 40), URL: webAddress(e.URL),
		Path:  localPath(e.Path),
		Width: min(max(e.Width, 0), maxPixels), Height: min(max(e.Height, 0), maxPixels), Video: e.Kind == workorder.EvidenceVideo, side: e.Side,
	}
	m.Label = m.Name
	if i := sideRank(e.Side); i < len(sides) && sides[i].label != "" {
		m.Label = sides[i].label
	}
	return m
}

// localPath returns a path below the result's directory, or "".
func localPath(s string) string {
	if !fs.ValidPath(s) || s == "." || len(s) > maxURL || clean(s) != s || strings.ContainsAny(s, "\\\n") {
		return ""
	}
	return s
}

// pathURL returns a relative address; "./" keeps a colon from making a scheme.
func pathURL(p string) string { return "./" + (&url.URL{Path: p}).EscapedPath() }

// signatures are the embedded formats by their first bytes. SVG is a document and not among them.
var signatures = []struct {
	at    int
	begin string
	mime  string
	video bool
}{
	{0, "\x89PNG\r\n\x1a\n", "image/png", false},
	{0, "\xff\xd8\xff", "image/jpeg", false},
	{8, "WEBP", "image/webp", false},
	{0, "GIF8", "image/gif", false},
	{0, "\x1aE\xdf\xa3", "video/webm", true},
	{4, "ftyp", "video/mp4", true},
}

type embedder struct {
	files fs.FS
	room  int
}

// dataURI returns the file's content as an address, or "" if its format or size is not allowed.
func (e *embedder) dataURI(p string, video bool) string {
	limit := maxPicture
	if video {
		limit = maxVideo
	}
	limit = min(limit, e.room)
	if e.files == nil || p == "" {
		return ""
	}
	// Neither a pipe, on which reading would wait, nor a directory.
	if st, err := fs.Stat(e.files, path.Clean(p)); err != nil || !st.Mode().IsRegular() || st.Size() > int64(limit) {
		return ""
	}
	f, err := e.files.Open(p)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil || len(b) > limit {
		return ""
	}
	for _, s := range signatures {
		if s.video == video && len(b) > s.at && bytes.HasPrefix(b[s.at:], []byte(s.begin)) {
			e.room -= len(b)
			return "data:" + s.mime + ";base64," + base64.StdEncoding.EncodeToString(b)
		}
	}
	return ""
}
