package text

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// textPart is how much of a line is cleaned at once. A cut escape sequence leaves harmless letters.
const textPart = 64 << 10

// Copy copies an untrusted text without escape sequences and control characters. Lines and tabs stay; a carriage return
// begins a new line.
func Copy(w io.Writer, r io.Reader) error {
	in := bufio.NewReaderSize(r, textPart)
	var rest []byte // bytes of an incomplete character
	for {
		part, err := in.ReadSlice('\n')
		part = append(rest, part...)
		rest = nil
		if errors.Is(err, bufio.ErrBufferFull) {
			for i := 1; i < utf8.UTFMax && i <= len(part); i++ {
				if tail := part[len(part)-i:]; utf8.RuneStart(tail[0]) && !utf8.FullRune(tail) {
					rest, part = append(rest, tail...), part[:len(part)-i]
					break
				}
			}
			err = nil
		}
		if len(part) > 0 {
			if _, werr := io.WriteString(w, cleanPart(string(part))); werr != nil {
				return werr
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func cleanPart(s string) string {
	if plain(strings.ReplaceAll(s, "\t", "")) {
		return s
	}
	var out strings.Builder
	s = strings.ReplaceAll(s, "\r\n", "\n")
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == 0x1b, r >= 0x80 && r <= 0x9f && n == 2:
			s = s[escapeLen(s, n):]
			continue
		case r == '\n', r == '\t':
			out.WriteRune(r)
		case r == '\r':
			out.WriteByte('\n')
		case r == utf8.RuneError && n == 1, IsControl(r):
			out.WriteRune(utf8.RuneError)
		default:
			out.WriteString(s[:n])
		}
		s = s[n:]
	}
	return out.String()
}
