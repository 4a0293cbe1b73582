package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// LastJSON returns the last line of an output that is not blank, if it is JSON; nil otherwise.
func LastJSON(output []byte) json.RawMessage {
	line := bytes.TrimSpace(output)
	line = bytes.TrimSpace(line[bytes.LastIndexByte(line, '\n')+1:])
	if !json.Valid(line) {
		return nil
	}
	return line
}

// EscapeControls escapes DEL and the eight-bit controls, which JSON allows inside strings.
func EscapeControls(b []byte) []byte {
	if bytes.IndexByte(b, 0x7f) < 0 && bytes.IndexByte(b, 0xc2) < 0 {
		return b
	}
	out := make([]byte, 0, len(b)+16)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r >= 0x7f && r <= 0x9f {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	return out
}
