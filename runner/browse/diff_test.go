package browse

import (
	"bytes"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"math"
	"testing"
)

// drawn is a white picture with black rectangles.
func drawn(t *testing.T, w, h int, black ...image.Rectangle) []byte {
	t.Helper()
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.Set(x, y, color.White)
			for _, r := range black {
				if image.Pt(x, y).In(r) {
					m.Set(x, y, color.Black)
				}
			}
		}
	}
	return encoded(t, m)
}

func encoded(t *testing.T, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestCompare(t *testing.T) {
	t.Parallel()
	square, moved := image.Rect(10, 10, 20, 20), image.Rect(50, 50, 60, 60)
	share, marked, err := Compare(drawn(t, 100, 100, square), drawn(t, 100, 100, square, moved))
	if err != nil || math.Abs(share-0.01) > 1e-9 {
		t.Fatal(share, err)
	}
	m, err := png.Decode(bytes.NewReader(marked))
	if err != nil || m.Bounds() != image.Rect(0, 0, 100, 100) {
		t.Fatal(m, err)
	}
	at := func(x, y int) [3]uint32 {
		r, g, b, _ := m.At(x, y).RGBA()
		return [3]uint32{r >> 8, g >> 8, b >> 8}
	}
	if got := at(55, 55); got != [3]uint32{0xd6, 0x0b, 0x6b} {
		t.Errorf("what differs is %v", got)
	}
	if got := at(0, 0); got != [3]uint32{255, 255, 255} {
		t.Errorf("white is %v", got)
	}
	if got := at(15, 15); got[0] < 190 || got[0] > 200 || got[0] != got[1] || got[1] != got[2] {
		t.Errorf("black that stays is %v", got)
	}
}

// Pictures of two sizes: what only one has differs.
func TestCompareSizes(t *testing.T) {
	t.Parallel()
	share, marked, err := Compare(drawn(t, 100, 50), drawn(t, 50, 100))
	if err != nil || math.Abs(share-0.75) > 1e-9 { // of 100 × 100 only 50 × 50 is in both
		t.Fatal(share, err)
	}
	if c, err := measure(marked); err != nil || c.Width != 100 || c.Height != 100 {
		t.Error(c, err)
	}
}

// The same picture in another encoding, or a shade beside, does not differ.
func TestCompareSame(t *testing.T) {
	t.Parallel()
	a := image.NewNRGBA(image.Rect(0, 0, 30, 30))
	b := image.NewRGBA(image.Rect(0, 0, 30, 30))
	for i := range 30 * 30 {
		a.Set(i%30, i/30, color.NRGBA{100, 150, 200, 255})
		b.Set(i%30, i/30, color.RGBA{100 + tolerance, 150 - tolerance, 200, 255})
	}
	if share, marked, err := Compare(encoded(t, a), encoded(t, b)); share != 0 || marked != nil || err != nil {
		t.Error(share, marked, err)
	}
	if share, marked, err := Compare(encoded(t, a), encoded(t, a)); share != 0 || marked != nil || err != nil {
		t.Error(share, marked, err)
	}
}

// claimed is a PNG whose head says another size than it has.
func claimed(t *testing.T, w, h uint32) []byte {
	t.Helper()
	b := drawn(t, 1, 1)
	for i, v := range []uint32{w, h} {
		for j := range 4 {
			b[16+4*i+j] = byte(v >> (24 - 8*j))
		}
	}
	sum := crc32.ChecksumIEEE(b[12:29])
	for j := range 4 {
		b[29+j] = byte(sum >> (24 - 8*j))
	}
	return b
}

// A head that claims a size beyond any page is refused before anything is decoded, also where both files are the same.
func TestCompareRefuses(t *testing.T) {
	t.Parallel()
	good := drawn(t, 10, 10)
	for name, bad := range map[string][]byte{
		"too wide": claimed(t, maxWidth+1, 10), "too high": claimed(t, 10, maxHeight+1), "huge": claimed(t, 1<<31-1, 1<<31-1),
		"none": nil, "text": []byte("<svg/>"), "cut": good[:20], "no pixels": claimed(t, 1000, 1000),
	} {
		for _, pair := range [][2][]byte{{bad, good}, {good, bad}} {
			if _, _, err := Compare(pair[0], pair[1]); !errors.Is(err, errPicture) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if name != "no pixels" { // whose head is a good one
			if _, _, err := Compare(bad, bad); !errors.Is(err, errPicture) {
				t.Errorf("%s twice: %v", name, err)
			}
		}
	}
}

func FuzzCompare(f *testing.F) {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 3, 3))); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 4096 {
			return
		}
		share, _, err := Compare(in, b.Bytes())
		if err == nil && (share < 0 || share > 1) {
			t.Error(share)
		}
	})
}
