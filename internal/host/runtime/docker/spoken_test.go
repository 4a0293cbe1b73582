package docker

import (
	"bytes"
	"testing"
)

func TestSpoken(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		parts     []string
		out, said string
	}{
		{[]string{"", "\x00\x00\x06\x04", "\x01O"}, "\x00\x00\x06\x04\x01O", ""},
		{[]string{"OCI runtime", "\x00 exec failed"}, "", "OCI runtime\x00 exec failed"},
		{nil, "", ""},
	} {
		var out, said bytes.Buffer
		s := &spoken{out: &out, said: &said}
		for _, p := range row.parts {
			if n, err := s.Write([]byte(p)); n != len(p) || err != nil {
				t.Errorf("%q: %d, %v", p, n, err)
			}
		}
		if out.String() != row.out || said.String() != row.said {
			t.Errorf("%q: %q and %q", row.parts, &out, &said)
		}
	}
}
