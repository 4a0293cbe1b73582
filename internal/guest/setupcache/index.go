package setupcache

import (
	"bytes"
	"encoding/binary"
)

// Sizes in the format of git's index: gitformat-index(5).
const (
	indexHeader = 12
	entryStat   = 40 // of an entry, before the object's id
	entryFlags  = 2  // after it
	assumeValid = 1 << 15
	extended    = 1 << 14
	skipTree    = 1 << 14 // of the extended flags
)

// honest reports whether git would examine every file of an index: setup can make git skip some, and a checkout would
// leave another commit's files. id is the size of an object's id in bytes.
func honest(index []byte, id int) bool {
	entryFixed := entryStat + id + entryFlags
	if len(index) < indexHeader || !bytes.HasPrefix(index, []byte("DIRC")) {
		return false
	}
	version, left := binary.BigEndian.Uint32(index[4:]), binary.BigEndian.Uint32(index[8:])
	if version != 2 && version != 3 {
		return false // 4 is written only on request
	}
	at := indexHeader
	for ; left > 0; left-- {
		if len(index)-at < entryFixed {
			return false
		}
		flags, name := binary.BigEndian.Uint16(index[at+entryStat+id:]), at+entryFixed
		if flags&assumeValid != 0 {
			return false
		}
		if flags&extended != 0 {
			if len(index)-name < 2 || binary.BigEndian.Uint16(index[name:])&skipTree != 0 {
				return false
			}
			name += 2
		}
		n := bytes.IndexByte(index[name:], 0)
		if n < 0 {
			return false
		}
		const unit = 8 // entries are padded to it with at least one NUL
		at += (name + n - at + unit) / unit * unit
		if at > len(index) {
			return false
		}
	}
	return !bytes.HasPrefix(index[at:], []byte("link")) // the rest of a split index is elsewhere
}
