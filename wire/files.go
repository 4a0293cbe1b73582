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

// Paths for files. QueryPath names the file: an absolute path, or one relative to Hello.Dir, accessed with the rights
// of the sandbox's user. A link at a path's end is followed unless a path documents otherwise.
const (
	// PathFiles returns a file's content by GET. PUT replaces the content by the body, atomically (QueryMode,
	// QueryParents). DELETE removes a file, a link itself or an empty directory; with QueryAll a directory tree.
	PathFiles = "/v1/files"
	// PathFilesInfo, by GET, returns a FileInfo; with QueryLink that of a link itself.
	PathFilesInfo = "/v1/files/info"
	// PathFilesList, by GET, returns a FileList of a directory, from the first name after QueryAfter.
	PathFilesList = "/v1/files/list"
	// PathFilesDir, by POST, creates a directory (QueryMode, QueryParents: an existing directory is not an error).
	PathFilesDir = "/v1/files/folder"
	// PathFilesTar, by GET, returns a tar of a file or directory tree. Its names begin with the path's last element. Links below the path
	// stay links; anything but files, directories and links is skipped. PUT unpacks the body, a tar, in an existing directory.
	PathFilesTar = "/v1/files/tar"
	// PathFilesSFTP, by POST, connects to an SFTP server, version 3: the body is its input, the answer its output.
	// Relative paths are relative to Hello.Dir, whatever QueryPath is.
	PathFilesSFTP = "/v1/files/sftp"
	// PathWatch, by GET, returns the changes of a file or directory as frames of FrameChange; with QueryAll also of
	// directories below. The answer begins once changes are being watched.
	PathWatch = "/v1/watch"
)

// Query parameters of file paths.
const (
	QueryPath    = "path"
	QueryMode    = "mode"    // permissions, octal
	QueryParents = "parents" // "1": create missing parent directories
	QueryAll     = "all"     // "1": include everything below
	QueryLink    = "link"    // "1": do not follow a link
	QueryAfter   = "after"   // a name in the directory
)

// TrailerEnd is a trailer of answers with content or a tar: an End. Without it the answer is incomplete.
const TrailerEnd = "Sandbox-End"

// Limits.
const (
	MaxList = 4096 // the limit of a FileList, in entries
	// MaxWatched is the limit of watched directories. A watch that exceeds it reports ChangeOverflow.
	MaxWatched = 4096
)

// Name is a file name or path on Linux: any bytes except zero. Its JSON is a string, or {"bytes": base64} if it is not UTF-8.
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

// FileType is the type of a file.
type FileType string

// File types.
const (
	TypeFile  FileType = "file"
	TypeDir   FileType = "folder"
	TypeLink  FileType = "link"
	TypeOther FileType = "other" // a device, pipe or socket
)

// FileInfo describes a file.
type FileInfo struct {
	Name     Name      `json:"name"` // without the directory
	Type     FileType  `json:"type"`
	Mode     uint32    `json:"mode"` // permissions with setuid, setgid and sticky, as in Linux
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	UID      uint32    `json:"uid"`
	GID      uint32    `json:"gid"`
	Target   Name      `json:"target,omitempty"` // of a link
}

// Check returns an error for impossible values.
func (i FileInfo) Check() error {
	n := string(i.Name)
	if n == "" || strings.ContainsRune(n, 0) || n != "/" && strings.Contains(n, "/") {
		return fmt.Errorf("%q is not a file name", n)
	}
	switch i.Type {
	case TypeFile, TypeDir, TypeLink, TypeOther:
	default:
		return fmt.Errorf("%q is not a file type", i.Type)
	}
	if i.Size < 0 || i.Mode > MaxMode {
		return fmt.Errorf("invalid file: %d bytes, mode %o", i.Size, i.Mode)
	}
	return nil
}

// MaxMode has all permission bits.
const MaxMode = 0o7777

// FileList is a part of a directory's entries, sorted by the bytes of their names.
type FileList struct {
	Entries []FileInfo `json:"entries"`
	More    bool       `json:"more,omitempty"` // further entries follow
}

// ChangeType is the type of a change.
type ChangeType string

// Types of changes.
const (
	ChangeCreated ChangeType = "made" // or moved here
	ChangeWritten ChangeType = "written"
	ChangeRemoved ChangeType = "gone" // or moved away
	ChangeMode    ChangeType = "rights"
	// ChangeOverflow means that changes or directories were dropped: read everything again.
	ChangeOverflow ChangeType = "lost"
)

// Change is the document of FrameChange.
type Change struct {
	Type  ChangeType `json:"type"`
	Path  Name       `json:"path,omitempty"` // relative to the watched path; "" is that path itself
	IsDir bool       `json:"folder,omitempty"`
}

// Check returns an error for impossible values.
func (c Change) Check() error {
	p := string(c.Path)
	if p != "" && (strings.ContainsRune(p, 0) || path.Clean(p) != p || path.IsAbs(p) || p == "." || p == ".." || strings.HasPrefix(p, "../")) {
		return fmt.Errorf("%q is not a relative path", p)
	}
	switch c.Type {
	case ChangeCreated, ChangeWritten, ChangeRemoved, ChangeMode, ChangeOverflow:
		return nil
	}
	return fmt.Errorf("%q is not a type of change", c.Type)
}

// TransferSummary is the document of TrailerEnd, and the answer to an unpacked tar.
type TransferSummary struct {
	// Files counts files and links of a tar, Bytes the content of files.
	Files int64 `json:"files,omitempty"`
	Bytes int64 `json:"bytes,omitempty"`
	// Skipped counts skipped entries: neither file, directory nor link.
	Skipped int64 `json:"left,omitempty"`
	// Error is why the answer is incomplete. The rest of a tar is usable.
	Error *Error `json:"error,omitempty"`
}

// Trailer encodes the document as the value of TrailerEnd.
func (e TransferSummary) Trailer() (string, error) {
	b, err := json.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("encode the end of an answer: %w", err)
	}
	return url.QueryEscape(string(b)), nil // a header must not have control characters
}

// ParseTransferSummary decodes the value of TrailerEnd.
func ParseTransferSummary(value string) (e TransferSummary, err error) {
	doc, err := url.QueryUnescape(value)
	if err == nil {
		err = json.Unmarshal([]byte(doc), &e)
	}
	if err == nil && (e.Files < 0 || e.Bytes < 0 || e.Skipped < 0) {
		err = fmt.Errorf("negative count: %+v", e)
	}
	if err != nil {
		return TransferSummary{}, fmt.Errorf("%w: the end: %w", ErrFrame, err)
	}
	return e, nil
}
