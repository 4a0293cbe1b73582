package mcpserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxFile bounds a file that is read or edited, maxText what of one is shown at a time, in bytes.
	maxFile = 4 << 20
	maxText = 48 << 10
	// maxMatches bounds the matches in an answer, maxContext the lines around each.
	maxMatches = 20
	maxContext = 2
)

type (
	// fileTarget is the arguments of a tool on a file.
	fileTarget struct {
		target
		File string `json:"target_file" jsonschema:"absolute, or below /workspace"`
	}
	readArguments struct {
		fileTarget
		Start *int `json:"start_line,omitempty"`
		End   *int `json:"end_line,omitempty"`
	}
	listArguments struct {
		target
		Path string `json:"path,omitempty"`
	}
	writeArguments struct {
		fileTarget
		Contents string `json:"contents"`
	}
	editArguments struct {
		fileTarget
		Search  string `json:"search_text"`
		Replace string `json:"replace_text"`
		Which   string `json:"which_match,omitempty"`
	}
)

var errNoFile = &WrongError{errors.New("arguments: target_file is needed")}

func (s *Server) readFile(ctx context.Context, e Sandbox, a *readArguments) (*mcp.CallToolResult, error) {
	if a.File == "" {
		return nil, errNoFile
	}
	b, err := e.Read(ctx, a.File, maxFile)
	if err != nil {
		return nil, err
	}
	if bytes.IndexByte(b, 0) >= 0 {
		return nil, fmt.Errorf("%s is no text: it has %d bytes, some of them zero", a.File, len(b))
	}
	part, note, err := linesOf(string(b), a.Start, a.End)
	if err != nil {
		return nil, err
	}
	res, err := said(part, nil)
	if note != "" && err == nil {
		res.Content = append(res.Content, &mcp.TextContent{Text: note})
	}
	return res, err
}

// linesOf is a part of a text, by lines counted from 1; nil is the first, or the last. The note says where it is not
// all that was asked for.
func linesOf(s string, start, end *int) (part, note string, err error) {
	lines := strings.SplitAfter(s, "\n")
	if last := len(lines) - 1; lines[last] == "" {
		lines = lines[:last]
	}
	from, to := 1, len(lines)
	if start != nil {
		from = *start
	}
	if end != nil {
		to = *end
	}
	switch {
	case from < 1 || end != nil && to < from:
		return "", "", &WrongError{fmt.Errorf("lines %d to %d: they are counted from 1, the first one first", from, to)}
	case len(lines) == 0:
		return "", "The file is empty.", nil
	case from > len(lines):
		return "", "", &WrongError{fmt.Errorf("line %d: the file has %d", from, len(lines))}
	}
	to = min(to, len(lines))
	size, shown := 0, from-1
	for shown < to && size+len(lines[shown]) <= maxText {
		size += len(lines[shown])
		shown++
	}
	if shown == from-1 { // one that is too long
		return begin(lines[shown], maxText), fmt.Sprintf("This is the beginning of line %d, of %d bytes; the file has %d lines.", from,
			len(lines[shown]), len(lines)), nil
	}
	if shown < to {
		note = fmt.Sprintf("These are lines %d to %d of %d: ask for more by start_line.", from, shown, len(lines))
	}
	return strings.Join(lines[from-1:shown], ""), note, nil
}

// maxListed bounds the list of a directory, in files.
const maxListed = 1000

func (s *Server) listFiles(ctx context.Context, e Sandbox, a *listArguments) (*mcp.CallToolResult, error) {
	a.Path = cmp.Or(a.Path, ".")
	all, err := e.List(ctx, a.Path)
	if err != nil {
		return nil, err
	}
	return document(struct {
		Files []SandboxFile `json:"files"`
		More  int           `json:"more,omitempty"`
	}{all[:min(len(all), maxListed)], max(0, len(all)-maxListed)}, nil)
}

func (s *Server) writeFile(ctx context.Context, e Sandbox, a *writeArguments) (*mcp.CallToolResult, error) {
	if a.File == "" {
		return nil, errNoFile
	}
	done, err := e.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return document(e.Write(ctx, a.File, []byte(a.Contents), "Write "+a.File))
}

func (s *Server) deleteFile(ctx context.Context, e Sandbox, a *fileTarget) (*mcp.CallToolResult, error) {
	if a.File == "" {
		return nil, errNoFile
	}
	done, err := e.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return document(e.Delete(ctx, a.File))
}

func (s *Server) editFile(ctx context.Context, e Sandbox, a *editArguments) (*mcp.CallToolResult, error) {
	if a.File == "" || a.Search == "" {
		return nil, &WrongError{errors.New("arguments: target_file and search_text are needed")}
	}
	done, err := e.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	b, err := e.Read(ctx, a.File, maxFile)
	if err != nil {
		return nil, err
	}
	all, count := matches(string(b), a.Search)
	chosen := -1
	for i, m := range all {
		if a.Which == m.ID || a.Which == "" && count == 1 {
			chosen = i
		}
	}
	if count == 0 {
		return nil, fmt.Errorf("search_text is not in %s: read the file again, spaces and line ends count", a.File)
	}
	if chosen < 0 {
		why := fmt.Sprintf("search_text is there %d times: name one of these by which_match, or search for more of the text around it", count)
		if a.Which != "" {
			why = fmt.Sprintf("which_match %.20q is none of these: ids change with the file", a.Which)
		}
		res, err := document(struct {
			Why     string  `json:"why"`
			Matches []match `json:"matches"`
			More    int     `json:"more,omitempty"`
		}{why, all, count - len(all)}, nil)
		if err == nil {
			res.IsError = true
		}
		return res, err
	}
	at := all[chosen].at
	return document(e.Write(ctx, a.File, []byte(string(b[:at])+a.Replace+string(b[at+len(a.Search):])), "Edit "+a.File))
}

// match is a place of a text in a file.
type match struct {
	ID      string `json:"id"` // of this place of this very content
	Line    int    `json:"line"`
	Context string `json:"context"`
	at      int
}

// matches are the first places of a text in a file, and how many there are.
func matches(s, search string) (all []match, count int) {
	content := sha256.Sum256([]byte(s))
	line, at := 1, 0
	for len(all) < maxMatches {
		i := strings.Index(s[at:], search)
		if i < 0 {
			break
		}
		line += strings.Count(s[at:at+i], "\n")
		at += i
		id := sha256.Sum256(fmt.Appendf(content[:], "%d %s", at, search))
		all = append(all, match{ID: fmt.Sprintf("%x", id[:4]), Line: line, Context: around(s, at, at+len(search)), at: at})
		line += strings.Count(search, "\n")
		at += len(search)
	}
	return all, strings.Count(s, search)
}

// around is a place with the lines around it.
func around(s string, from, to int) string {
	for range maxContext + 1 {
		from = max(0, strings.LastIndexByte(s[:max(0, from)], '\n'))
		if i := strings.IndexByte(s[to:], '\n'); i >= 0 {
			to += i + 1
		} else {
			to = len(s)
		}
	}
	const most = 600 // bytes
	return begin(strings.Trim(s[from:to], "\n"), most)
}
