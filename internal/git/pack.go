package git

import (
	"bufio"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// PackLimits bound the objects of a pack in memory: a delta of some bytes can make gigabytes. All sizes are in bytes.
type PackLimits struct {
	Objects uint32
	// Blob bounds a blob, which git streams. Object bounds any other object and a delta's result, which git has in memory.
	Blob, Object int64
	// Total bounds the sum of all objects.
	Total int64
}

// ErrPack means that a pack exceeds its limits, or is none.
var ErrPack = errors.New("refused pack")

// LimitPack returns the pack in r (with ids of 20 bytes); Read fails before git has the whole of a pack with an object
// beyond the limits. The caller closes it.
func LimitPack(r io.Reader, l PackLimits) *LimitedPack {
	pr, pw := io.Pipe()
	p := &LimitedPack{PipeReader: pr}
	go func() {
		s := &packScanner{
			r: bufio.NewReaderSize(r, packBuffer), w: pw, left: l, inflated: bufio.NewReaderSize(nil, packBuffer),
			part: make([]byte, packBuffer),
		}
		err := s.pack()
		if errors.Is(err, ErrPack) {
			p.refused.Store(&err)
		}
		pw.CloseWithError(err)
	}()
	return p
}

// LimitedPack is a pack within its limits.
type LimitedPack struct {
	*io.PipeReader
	refused atomic.Pointer[error]
}

// Refused returns why the pack was cut off; nil if it was not. git itself only reports an early end.
func (p *LimitedPack) Refused() error {
	if err := p.refused.Load(); err != nil {
		return *err
	}
	return nil
}

const packBuffer = 64 << 10

const (
	packBlob     = 3
	packOffset   = 6 // a delta, of an object at an offset
	packRef      = 7 // a delta, of an object by its id
	packIDLength = 20
)

type packScanner struct {
	r    *bufio.Reader
	w    io.Writer
	read []byte // and not passed on
	left PackLimits
	z    io.ReadCloser
	// inflated and part are buffers for each object in turn.
	inflated *bufio.Reader
	part     []byte
}

// ReadByte implements io.ByteReader: otherwise a decompressor reads beyond the object's end.
func (s *packScanner) ReadByte() (byte, error) {
	c, err := s.r.ReadByte()
	if err == nil {
		s.read = append(s.read, c)
	}
	return c, err
}

func (s *packScanner) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.read = append(s.read, p[:n]...)
	return n, err
}

// pass passes on what was read if that is much, or all of it.
func (s *packScanner) pass(all bool) error {
	if !all && len(s.read) < packBuffer {
		return nil
	}
	_, err := s.w.Write(s.read)
	s.read = s.read[:0]
	return err
}

func (s *packScanner) pack() error {
	var head [12]byte
	if _, err := io.ReadFull(s, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[8:])
	if string(head[:4]) != "PACK" || n > s.left.Objects {
		return fmt.Errorf("%w: %d objects exceed the limit of %d", ErrPack, n, s.left.Objects)
	}
	for range n {
		if err := s.object(); err != nil {
			return err
		}
	}
	var sum [packIDLength]byte
	if _, err := io.ReadFull(s, sum[:]); err != nil {
		return err
	}
	return s.pass(true)
}

// object passes on one object, which begins with its type and uncompressed size.
func (s *packScanner) object() error {
	c, err := s.ReadByte()
	if err != nil {
		return err
	}
	kind, size := c>>4&7, uint64(c&15)
	if c&128 != 0 {
		rest, err := varint(s)
		if err != nil || rest > 1<<56 {
			return errors.Join(err, ErrPack)
		}
		size |= rest << 4
	}
	most := s.left.Object
	switch kind {
	case packBlob:
		most = s.left.Blob
	case packOffset:
		for c = 128; c&128 != 0 && err == nil; {
			c, err = s.ReadByte()
		}
	case packRef:
		var base [packIDLength]byte
		_, err = io.ReadFull(s, base[:])
	}
	if err == nil {
		err = s.allow(size, most)
	}
	if err != nil {
		return err
	}
	return s.content(size, kind == packOffset || kind == packRef)
}

// allow counts an object, or a delta's result.
func (s *packScanner) allow(size uint64, most int64) error {
	if size > uint64(most) {
		return fmt.Errorf("%w: an object of %d bytes exceeds the limit of %d", ErrPack, size, most)
	}
	if s.left.Total -= int64(size); s.left.Total < 0 {
		return fmt.Errorf("%w: its objects exceed the total size limit", ErrPack)
	}
	return nil
}

// content passes on an object's compressed content. A delta begins with the sizes of its base and its result.
func (s *packScanner) content(size uint64, delta bool) error {
	var err error
	if s.z == nil {
		s.z, err = zlib.NewReader(s)
	} else {
		err = s.z.(zlib.Resetter).Reset(s, nil)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPack, err)
	}
	in := s.inflated
	in.Reset(io.LimitReader(s.z, int64(size)+1))
	read := int64(0)
	if delta {
		counted := &countedBytes{r: in}
		_, err := varint(counted)
		var result uint64
		if err == nil {
			result, err = varint(counted)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrPack, err)
		}
		if err := s.allow(result, s.left.Object); err != nil {
			return err
		}
		read = counted.n
	}
	for err == nil {
		var n int
		n, err = in.Read(s.part)
		read += int64(n)
		if perr := s.pass(false); perr != nil {
			return perr
		}
	}
	if !errors.Is(err, io.EOF) || read != int64(size) {
		return fmt.Errorf("%w: an object's size differs from its header: %w", ErrPack, err)
	}
	return nil
}

type countedBytes struct {
	r io.ByteReader
	n int64
}

func (c *countedBytes) ReadByte() (byte, error) {
	c.n++
	return c.r.ReadByte()
}

// varint reads a number, the lowest seven bits first.
func varint(r io.ByteReader) (n uint64, err error) {
	for shift := 0; shift < 63; shift += 7 {
		c, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		n |= uint64(c&127) << shift
		if c&128 == 0 {
			return n, nil
		}
	}
	return 0, ErrPack
}
