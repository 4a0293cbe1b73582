package browse

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
)

// tolerance is how much a channel may differ, of 255: rendering a page twice does not give identical pixels.
const tolerance = 12

var errPicture = errors.New("not a PNG of the size of a screenshot")

// measure returns the size of a picture, of which it reads only the header.
func measure(b []byte) (image.Config, error) {
	c, err := png.DecodeConfig(bytes.NewReader(b))
	if err != nil {
		return c, fmt.Errorf("%w: %w", errPicture, err)
	}
	if c.Width < 1 || c.Height < 1 || c.Width > maxWidth || c.Height > maxHeight {
		return c, fmt.Errorf("%w: it has %d × %d pixels", errPicture, c.Width, c.Height)
	}
	return c, nil
}

func decode(b []byte) (*image.RGBA, error) {
	if _, err := measure(b); err != nil {
		return nil, err
	}
	m, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errPicture, err)
	}
	if r, ok := m.(*image.RGBA); ok && r.Rect.Min == (image.Point{}) {
		return r, nil
	}
	r := image.NewRGBA(image.Rect(0, 0, m.Bounds().Dx(), m.Bounds().Dy()))
	draw.Draw(r, r.Rect, m, m.Bounds().Min, draw.Src)
	return r, nil
}

// Compare returns the share of pixels that differ, from 0 to 1, and a picture that marks them; nil if nothing differs.
// An area that only one picture has counts as different.
func Compare(base, head []byte) (share float64, marked []byte, err error) {
	if bytes.Equal(base, head) {
		_, err := measure(base)
		return 0, nil, err
	}
	b, err := decode(base)
	if err != nil {
		return 0, nil, fmt.Errorf("the picture of base: %w", err)
	}
	h, err := decode(head)
	if err != nil {
		return 0, nil, fmt.Errorf("the picture of head: %w", err)
	}
	all := b.Rect.Union(h.Rect)
	out := image.NewPaletted(all, palette())
	differ := 0
	for y := range all.Dy() {
		for x := range all.Dx() {
			at := image.Pt(x, y)
			inBase, inHead := at.In(b.Rect), at.In(h.Rect)
			if inBase && inHead && same(pixel(b, x, y), pixel(h, x, y)) {
				out.Pix[y*out.Stride+x] = pale(pixel(h, x, y))
				continue
			}
			differ++
			out.Pix[y*out.Stride+x] = markAt
		}
	}
	if differ == 0 {
		return 0, nil, nil
	}
	var buf bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&buf, out); err != nil {
		return 0, nil, fmt.Errorf("write the picture of the differences: %w", err)
	}
	return float64(differ) / float64(all.Dx()*all.Dy()), buf.Bytes(), nil
}

func pixel(m *image.RGBA, x, y int) []byte {
	i := y*m.Stride + 4*x
	return m.Pix[i : i+4 : i+4]
}

func same(a, b []byte) bool {
	for i := range 4 {
		if d := int(a[i]) - int(b[i]); d > tolerance || d < -tolerance {
			return false
		}
	}
	return true
}

// Indexes into the palette: shades of grey, and the mark.
const (
	greys  = 64
	markAt = greys
)

func palette() color.Palette {
	var p color.Palette
	for i := range greys {
		p = append(p, color.Gray{Y: uint8(255 - greys + 1 + i)})
	}
	return append(p, color.RGBA{R: 0xd6, G: 0x0b, B: 0x6b, A: 0xff})
}

func pale(p []byte) uint8 {
	lum := (299*int(p[0]) + 587*int(p[1]) + 114*int(p[2])) / 1000
	return uint8(lum * (greys - 1) / 255)
}
