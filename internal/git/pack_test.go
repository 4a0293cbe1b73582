package git_test

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// A pack of git's own comes through as it is, deltas of both kinds in it.
func TestLimitPackPasses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	gittest.Git(t, dir, "init", "-q", "-b", "main")
	text := strings.Repeat("a line of text\n", 5000)
	for _, more := range []string{"", "one\n", "two\n"} {
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(text+more), 0o644); err != nil {
			t.Fatal(err)
		}
		gittest.Git(t, dir, "add", "f")
		gittest.Git(t, dir, "commit", "-q", "-m", "c"+more)
	}
	r := git.Repo{Dir: dir}
	for _, args := range [][]string{{"--all"}, {"--all", "--thin"}, {"--all", "--delta-base-offset"}} {
		var pack, out bytes.Buffer
		in := strings.NewReader("")
		if args[len(args)-1] == "--thin" {
			in, args = strings.NewReader("HEAD\n^HEAD~1\n"), []string{"--thin"}
		}
		if _, err := r.Stream(t.Context(), in, &pack, 0, append([]string{
			"-c", "core.bigFileThreshold=1g", "pack-objects", "--revs",
			"--stdout", "-q",
		}, args...)...); err != nil {
			t.Fatal(err)
		}
		l := git.LimitPack(bytes.NewReader(pack.Bytes()), git.PackLimits{Objects: 100, Blob: 1 << 20, Object: 1 << 20, Total: 1 << 20})
		if _, err := io.Copy(&out, l); err != nil || !bytes.Equal(out.Bytes(), pack.Bytes()) {
			t.Errorf("%q: %d bytes of %d, %v", args, out.Len(), pack.Len(), err)
		}
		l.Close()
	}
}

func packed(kind byte, size uint64, base, content []byte) []byte {
	b := []byte{kind<<4 | byte(size&15)}
	for size >>= 4; size > 0; size >>= 7 {
		b[len(b)-1] |= 128
		b = append(b, byte(size&127))
	}
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, _ = w.Write(content) // of memory
	_ = w.Close()
	return append(append(b, base...), z.Bytes()...)
}

func whole(objects ...[]byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(len(objects)))
	b = append(b, bytes.Join(objects, nil)...)
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}

func TestLimitPackRefuses(t *testing.T) {
	t.Parallel()
	id, big := make([]byte, 20), make([]byte, 3000)
	delta := func(result uint64) []byte {
		d := binary.AppendUvarint(binary.AppendUvarint(nil, 1000), result)
		return packed(7, uint64(len(d)+len(id)), id, append(d, id...))
	}
	blob := packed(3, 1000, nil, big[:1000])
	for name, row := range map[string]struct {
		pack []byte
		ok   bool
	}{
		"good":              {whole(blob, delta(1000), packed(3, 2000, nil, big[:2000])), true},
		"a delta":           {whole(blob, delta(1001)), false},
		"an offset delta":   {whole(blob, packed(6, 4, []byte{128, 5}, binary.AppendUvarint(binary.AppendUvarint(nil, 1000), 1001))), false},
		"a tree":            {whole(packed(2, 1001, nil, big[:1001])), false},
		"a blob":            {whole(packed(3, 2001, nil, big[:2001])), false},
		"more than it says": {whole(packed(3, 10, nil, big)), false},
		"less than it says": {whole(packed(3, 1000, nil, big[:10])), false},
		"many":              {whole(blob, blob, blob, blob, blob), false},
		"together":          {whole(packed(3, 2000, nil, big[:2000]), packed(3, 2000, nil, big[:2000]), blob), false},
		"no pack":           {bytes.Repeat([]byte("x"), 100), false},
		"a part":            {whole(blob)[:20], false},
		"a huge size":       {whole(append(bytes.Repeat([]byte{0xbf}, 9), 1, 2, 3)), false},
	} {
		r := git.LimitPack(bytes.NewReader(row.pack), git.PackLimits{Objects: 4, Blob: 2000, Object: 1000, Total: 4500})
		_, err := io.Copy(io.Discard, r)
		r.Close()
		if (err == nil) != row.ok || !row.ok && !errors.Is(err, git.ErrPack) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
