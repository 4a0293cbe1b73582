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

// FrameType is the type of a frame.
type FrameType byte

// Frame types. A client ignores unknown ones.
const (
	FrameCommand FrameType = 1 // a Command; only it and FrameCell are sent by a client
	FrameStarted FrameType = 2 // a Started
	FrameStdout  FrameType = 3
	FrameStderr  FrameType = 4
	FrameAlive   FrameType = 5 // empty: the command is quiet
	// FrameLost replaces output that the guest has dropped: the number of bytes, 8 bytes big-endian.
	FrameLost FrameType = 6
	FrameExit FrameType = 7 // an Exit, always last
	// FrameChange is a Change.
	FrameChange FrameType = 8
	// FrameCell is a Cell, FrameDisplay a Display, FrameCellEnd a CellEnd.
	FrameCell    FrameType = 9
	FrameDisplay FrameType = 10
	FrameCellEnd FrameType = 11
)

const (
	headLen = 5
	// MaxOutputFrame is the limit of an output frame, in bytes. It is the size of a Linux pipe.
	MaxOutputFrame = 64 << 10
)

// ErrFrame means that a stream does not consist of frames.
var ErrFrame = errors.New("not a valid frame")

// AppendFrame appends a frame to b: the type, the length as four bytes big-endian, and the payload.
func AppendFrame(b []byte, t FrameType, payload []byte) []byte {
	return append(append(b, FrameHead(t, len(payload))...), payload...)
}

// FrameHead returns the header of a frame with a payload of n bytes.
func FrameHead(t FrameType, n int) []byte {
	return binary.BigEndian.AppendUint32([]byte{byte(t)}, uint32(n))
}

// DocumentFrame returns a frame with a document.
func DocumentFrame(t FrameType, document any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // escaping makes an HTML page of a cell up to six times as long
	if err := e.Encode(document); err != nil {
		return nil, fmt.Errorf("encode a frame: %w", err)
	}
	doc := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(doc) > MaxDocument {
		return nil, fmt.Errorf("a document of %d bytes is larger than %d", len(doc), MaxDocument)
	}
	return AppendFrame(nil, t, doc), nil
}

// LostFrame returns a frame of FrameLost.
func LostFrame(n int64) []byte {
	return AppendFrame(nil, FrameLost, binary.BigEndian.AppendUint64(nil, uint64(n)))
}

// Frame is a received frame.
type Frame struct {
	Type    FrameType
	Payload []byte // valid until the next call of Next
}

// Lost returns the number of bytes of a FrameLost.
func (f Frame) Lost() (int64, error) {
	if len(f.Payload) != 8 {
		return 0, fmt.Errorf("%w: count of %d bytes", ErrFrame, len(f.Payload))
	}
	n := binary.BigEndian.Uint64(f.Payload)
	if n > 1<<62 {
		return 0, fmt.Errorf("%w: %d lost bytes", ErrFrame, n)
	}
	return int64(n), nil
}

// Decode decodes the payload's document.
func (f Frame) Decode(document any) error {
	if err := json.Unmarshal(f.Payload, document); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil
}

// Reader reads frames from an untrusted sender. It limits a frame by its type, and allocates memory only for received bytes.
type Reader struct {
	r   *bufio.Reader
	buf []byte
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, headLen+MaxOutputFrame)}
}

// Next reads a frame. It returns io.EOF at the end of the stream, io.ErrUnexpectedEOF within a frame.
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

// Rest returns the bytes after the frames that were read.
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
