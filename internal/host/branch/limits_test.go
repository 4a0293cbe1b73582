package branch

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

// packOf is a pack of objects: each a type, what is before the content, and the content.
func packOf(objects ...[3][]byte) string {
	b := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(len(objects)))
	for _, o := range objects {
		size := len(o[2])
		b = append(b, o[0][0]<<4|byte(size&15))
		for size >>= 4; size > 0; size >>= 7 {
			b[len(b)-1] |= 128
			b = append(b, byte(size&127))
		}
		b = append(b, o[1]...)
		var z bytes.Buffer
		w := zlib.NewWriter(&z)
		_, _ = w.Write(o[2]) // of memory
		_ = w.Close()
		b = append(b, z.Bytes()...)
	}
	sum := sha1.Sum(b)
	return string(append(b, sum[:]...))
}

func id(kind string, content []byte) []byte {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", kind, len(content))
	h.Write(content)
	return h.Sum(nil)
}

// deep is a file in so many directories, and the id of the tree.
func deep(n int) (pack string, tree []byte) {
	objects := [][3][]byte{{{3}, nil, []byte("x")}}
	content := append([]byte("100644 f\x00"), id("blob", []byte("x"))...)
	for range n {
		objects = append(objects, [3][]byte{{2}, nil, content})
		content = append([]byte("40000 d\x00"), id("tree", content)...)
	}
	objects = append(objects, [3][]byte{{2}, nil, content})
	return packOf(objects...), id("tree", content)
}

// What is small on its way and large in memory is refused before git makes it.
func TestLimits(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "e", repo)
	save(t, b, p, "", 0)
	const mib = 1 << 20
	base, copies := make([]byte, mib), maxObject/mib+1
	delta := binary.AppendUvarint(binary.AppendUvarint(nil, mib), uint64(copies*mib))
	for range copies {
		delta = append(delta, 0x80|0x40, 0x10) // 1 MiB from the start
	}
	tree := append([]byte("100644 big\x00"), id("blob", make([]byte, copies*mib))...)
	bomb := packOf([3][]byte{{3}, nil, base}, [3][]byte{{7}, id("blob", base), delta}, [3][]byte{{2}, nil, tree})
	nested, top := deep(maxDepth + 10)
	fine, fineTop := deep(20)
	for _, row := range []struct {
		name, pack string
		tree       []byte
		bad        bool
	}{{"a delta", bomb, id("tree", tree), true}, {"depth", nested, top, true}, {"a commit's depth", nested, fineTop, true}, {"no depth", fine, fineTop, false}} {
		commits := ""
		if row.name == "a commit's depth" {
			commit := fmt.Sprintf("tree %x\n\nx", top)
			commits = fmt.Sprintf("%040d commit %d\n%s\n", 1, len(commit), commit)
		}
		in := func(_ context.Context, _ []string, _ io.Reader, out io.Writer) error {
			_, err := io.Copy(out, strings.NewReader(fmt.Sprintf("%x AAAA -\n.\n%s.\n%s", row.tree, commits, row.pack)))
			return err
		}
		_, err := b.In(in, p.dir).bring(t.Context(), ask{tree: emptyTree, commits: 1})
		if (err != nil) != row.bad || row.name == "a delta" && !errors.Is(err, git.ErrPack) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}
