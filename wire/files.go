package wire

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode/utf8"
)

// The paths for files. Each names one by QueryPath, which the sandbox's user has to have the right to: an absolute path, or one below the
// sandbox's folder (Hello.Dir). A link at a path's end is followed, but where it says otherwise.
const (
	// PathFiles, by GET, answers with a file's content. By PUT the body becomes the content, whole or not at all (QueryMode, QueryParents). By
	// DELETE it removes a file, a link itself, or an empty folder; with QueryAll also what is below a folder.
	PathFiles = "/v1/files"
	// PathFilesInfo, by GET, answers with a FileInfo; with QueryLink of a link itself.
	PathFilesInfo = "/v1/files/info"
	// PathFilesList, by GET, answers with a FileList of a folder, from the first name behind QueryAfter.
	PathFilesList = "/v1/files/list"
	// PathFilesFolder, by POST, makes a folder (QueryMode, QueryParents: a folder that is there already is none to complain of).
	PathFilesFolder = "/v1/files/folder"
	// PathFilesTar, by GET, answers with a tar of a file, or of a folder with all below it. Its names begin with the last one of the path. Links
	// below the path are links in it; what is no file, folder or link is left out. By PUT the body, a tar, is unpacked in a folder that is there.
	PathFilesTar = "/v1/files/tar"
	// PathFilesSFTP, by POST, speaks SFTP, version 3: the body goes to its server, the answer comes from there. Relative paths are
	// below the sandbox's folder, whatever the path.
	PathFilesSFTP = "/v1/files/sftp"
	// PathWatch, by GET, answers with what changes in a folder, or of a file, as frames of FrameChange; with QueryAll also in folders below. The
	// answer begins when changes are seen.
	PathWatch = "/v1/watch"
)

// The parameters of paths for files.
const (
	QueryPath    = "path"
	QueryMode    = "mode"    // permissions, octal
	QueryParents = "parents" // "1": folders above are made where they are missing
	QueryAll     = "all"     // "1": what is below, too
	QueryLink    = "link"    // "1": a link is not followed
	QueryAfter   = "after"   // a name of the folder
)

// TrailerEnd is a trailer of answers of content and of tars: an End. Without it the answer is not whole.
const TrailerEnd = "Sandbox-End"

const (
	// MaxList bounds a FileList, in entries.
	MaxList = 4096
	// MaxWatched bounds the folders of one watch. Where there are more, FrameChange says so (ChangeLost).
	MaxWatched = 4096
)

// Name is a name or path of Linux: any bytes but zero. In JSON it is a string, or {"bytes": base64} where it is no UTF-8.
type Name string

type rawName struct {
	Bytes []byte `json:"bytes"`
}

// MarshalJSON implements json.Marshaler.
func (n Name) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(n)) {
		return json.Marshal(string(n))
	}
	return json.Marshal(rawName{[]byte(n)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *Name) UnmarshalJSON(b []byte) error {
	var raw rawName
	if json.Unmarshal(b, &raw) == nil {
		*n = Name(raw.Bytes)
		return nil
	}
	return json.Unmarshal(b, (*string)(n))
}

// FileType is what is at a path.
type FileType string

// The types of files.
const (
	TypeFile   FileType = "file"
	TypeFolder FileType = "folder"
	TypeLink   FileType = "link"
	TypeOther  FileType = "other" // a device, a pipe, a socket
)

// FileInfo is what is known of a file.
type FileInfo struct {
	Name     Name      `json:"name"` // without a folder
	Type     FileType  `json:"type"`
	Mode     uint32    `json:"mode"` // permissions, with setuid, setgid and sticky as in Linux
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	UID      uint32    `json:"uid"`
	GID      uint32    `json:"gid"`
	Target   Name      `json:"target,omitempty"` // of a link
}

// Check returns what cannot be true of a file.
func (i FileInfo) Check() error {
	n := string(i.Name)
	if n == "" || strings.ContainsRune(n, 0) || n != "/" && strings.Contains(n, "/") {
		return fmt.Errorf("%q is no name of a file", n)
	}
	switch i.Type {
	case TypeFile, TypeFolder, TypeLink, TypeOther:
	default:
		return fmt.Errorf("%q is no type of a file", i.Type)
	}
	if i.Size < 0 || i.Mode > MaxMode {
		return fmt.Errorf("a file of %d bytes with mode %o", i.Size, i.Mode)
	}
	return nil
}

// MaxMode has all permissions.
const MaxMode = 0o7777

// FileList is some of a folder's entries, in the order of their names' bytes.
type FileList struct {
	Entries []FileInfo `json:"entries"`
	More    bool       `json:"more,omitempty"` // behind the last one
}

// ChangeType is what happened to a file.
type ChangeType string

// The types of changes.
const (
	ChangeMade    ChangeType = "made" // also: moved here
	ChangeWritten ChangeType = "written"
	ChangeGone    ChangeType = "gone" // also: moved away
	ChangeRights  ChangeType = "rights"
	// ChangeLost means that there were more changes, or folders, than could be told: look at all of it.
	ChangeLost ChangeType = "lost"
)

// Change is the document of FrameChange.
type Change struct {
	Type ChangeType `json:"type"`
	// Path is below the one that is watched; "" is that one.
	Path   Name `json:"path,omitempty"`
	Folder bool `json:"folder,omitempty"`
}

// Check returns what cannot be true of a change.
func (c Change) Check() error {
	p := string(c.Path)
	if p != "" && (strings.ContainsRune(p, 0) || path.Clean(p) != p || path.IsAbs(p) || p == "." || p == ".." || strings.HasPrefix(p, "../")) {
		return fmt.Errorf("%q is no path below another", p)
	}
	switch c.Type {
	case ChangeMade, ChangeWritten, ChangeGone, ChangeRights, ChangeLost:
		return nil
	}
	return fmt.Errorf("%q is no type of a change", c.Type)
}

// End is the document of TrailerEnd, and the answer of a tar that was unpacked.
type End struct {
	// Files and Bytes are what a tar has: files and links, and the content of files.
	Files int64 `json:"files,omitempty"`
	Bytes int64 `json:"bytes,omitempty"`
	// Left counts what is neither file, folder nor link and was left out.
	Left int64 `json:"left,omitempty"`
	// Error is why not all is there; of a tar, the rest is.
	Error *Error `json:"error,omitempty"`
}

// Trailer is the document as the value of TrailerEnd.
func (e End) Trailer() (string, error) {
	b, err := json.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("encode an answer's end: %w", err)
	}
	return url.QueryEscape(string(b)), nil // a header has no control characters
}

// ParseEnd reads the value of TrailerEnd.
func ParseEnd(value string) (e End, err error) {
	doc, err := url.QueryUnescape(value)
	if err == nil {
		err = json.Unmarshal([]byte(doc), &e)
	}
	if err == nil && (e.Files < 0 || e.Bytes < 0 || e.Left < 0) {
		err = fmt.Errorf("less than nothing: %+v", e)
	}
	if err != nil {
		return End{}, fmt.Errorf("%w: the end: %w", ErrFrame, err)
	}
	return e, nil
}
