package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// FrameType says what a frame has.
type FrameType byte

// The types of frames. A user skips those that it does not know.
const (
	FrameCommand FrameType = 1 // a Command; it and FrameCell alone are from a user
	FrameStarted FrameType = 2 // a Started
	FrameStdout  FrameType = 3
	FrameStderr  FrameType = 4
	FrameAlive   FrameType = 5 // nothing: the command is quiet
	// FrameLost stands for output that the guest keeps no longer: 8 bytes, the number of bytes, big-endian.
	FrameLost FrameType = 6
	FrameExit FrameType = 7 // an Exit, always the last one
	// FrameChange is a Change.
	FrameChange FrameType = 8
	// FrameCell is a Cell, FrameDisplay a Display, FrameCellEnd a CellEnd.
	FrameCell    FrameType = 9
	FrameDisplay FrameType = 10
	FrameCellEnd FrameType = 11
)

const (
	headLen = 5
	// MaxOutputFrame bounds a frame of output, in bytes. It is what a pipe of Linux holds.
	MaxOutputFrame = 64 << 10
)

// ErrFrame is in the error of a stream that is not made of frames.
var ErrFrame = errors.New("not a frame of the wire")

// AppendFrame appends a frame to b: type, length of four bytes, big-endian, and payload.
func AppendFrame(b []byte, t FrameType, payload []byte) []byte {
	return append(append(b, FrameHead(t, len(payload))...), payload...)
}

// FrameHead is what stands before a payload of n bytes.
func FrameHead(t FrameType, n int) []byte {
	return binary.BigEndian.AppendUint32([]byte{byte(t)}, uint32(n))
}

// DocumentFrame is a frame with a document.
func DocumentFrame(t FrameType, document any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // a page that a cell shows would be six times as long
	if err := e.Encode(document); err != nil {
		return nil, fmt.Errorf("encode a frame: %w", err)
	}
	doc := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(doc) > MaxDocument {
		return nil, fmt.Errorf("a document of %d bytes is larger than %d", len(doc), MaxDocument)
	}
	return AppendFrame(nil, t, doc), nil
}

// LostFrame is a frame of FrameLost.
func LostFrame(n int64) []byte {
	return AppendFrame(nil, FrameLost, binary.BigEndian.AppendUint64(nil, uint64(n)))
}

// Frame is one that was read.
type Frame struct {
	Type FrameType
	// Payload is valid until the next call of Next.
	Payload []byte
}

// Lost is the number of bytes of a FrameLost.
func (f Frame) Lost() (int64, error) {
	if len(f.Payload) != 8 {
		return 0, fmt.Errorf("%w: %d bytes for a count", ErrFrame, len(f.Payload))
	}
	n := binary.BigEndian.Uint64(f.Payload)
	if n > 1<<62 {
		return 0, fmt.Errorf("%w: %d bytes were lost", ErrFrame, n)
	}
	return int64(n), nil
}

// Decode reads the payload's document.
func (f Frame) Decode(document any) error {
	if err := json.Unmarshal(f.Payload, document); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil
}

// Reader reads frames of whoever cannot be trusted: a frame is as long as its type may be, and memory is taken for what has arrived
// and not for what was announced.
type Reader struct {
	r   *bufio.Reader
	buf []byte
}

// NewReader reads frames from r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, headLen+MaxOutputFrame)}
}

// Next reads a frame. At the end between two frames the error is io.EOF, in the middle of one io.ErrUnexpectedEOF.
func (r *Reader) Next() (Frame, error) {
	var head [headLen]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return Frame{}, err
	}
	t, n := FrameType(head[0]), int64(binary.BigEndian.Uint32(head[1:]))
	if most := longest(t); n > most {
		return Frame{}, fmt.Errorf("%w: %d bytes of type %d, at most %d", ErrFrame, n, t, most)
	}
	r.buf = r.buf[:0]
	for int64(len(r.buf)) < n {
		part := int(min(n-int64(len(r.buf)), MaxOutputFrame))
		have := len(r.buf)
		r.buf = append(r.buf, make([]byte, part)...)
		if _, err := io.ReadFull(r.r, r.buf[have:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return Frame{}, err
		}
	}
	return Frame{Type: t, Payload: r.buf}, nil
}

// Rest is what follows the frames that were read.
func (r *Reader) Rest() io.Reader { return r.r }

func longest(t FrameType) int64 {
	switch t {
	case FrameStdout, FrameStderr:
		return MaxOutputFrame
	case FrameLost:
		return 8
	case FrameAlive:
		return 0
	case FrameCommand, FrameStarted, FrameExit, FrameChange, FrameCell, FrameDisplay, FrameCellEnd:
		return MaxDocument
	default:
		return MaxOutputFrame // of a later version
	}
}
