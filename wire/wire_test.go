package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// What was written is read, one after another, and then the input that follows.
func TestFrames(t *testing.T) {
	t.Parallel()
	command, err := DocumentFrame(FrameCommand, Command{Argv: []string{"echo", "é\x7f"}, TimeoutMS: 5})
	if err != nil {
		t.Fatal(err)
	}
	b := AppendFrame(command, FrameStdout, bytes.Repeat([]byte("x"), MaxOutputFrame))
	b = append(b, LostFrame(7)...)
	b = AppendFrame(b, FrameAlive, nil)
	b = AppendFrame(b, 99, []byte("later"))
	r := NewReader(bytes.NewReader(append(b, "rest"...)))
	var types []FrameType
	for range 5 {
		f, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, f.Type)
		switch f.Type {
		case FrameCommand:
			var c Command
			if err := f.Decode(&c); err != nil || c.TimeoutMS != 5 || c.Argv[1] != "é\x7f" {
				t.Errorf("%+v, %v", c, err)
			}
		case FrameStdout:
			if len(f.Payload) != MaxOutputFrame {
				t.Errorf("%d bytes", len(f.Payload))
			}
		case FrameLost:
			if n, err := f.Lost(); n != 7 || err != nil {
				t.Errorf("%d lost, %v", n, err)
			}
		}
	}
	if want := []FrameType{FrameCommand, FrameStdout, FrameLost, FrameAlive, 99}; !slices.Equal(types, want) {
		t.Errorf("types %v, want %v", types, want)
	}
	if rest, err := io.ReadAll(r.Rest()); string(rest) != "rest" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestFramesThatAreNone(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		in   string
		want error
	}{
		"nothing":               {"", io.EOF},
		"half a head":           {"\x03\x00", io.ErrUnexpectedEOF},
		"no payload":            {"\x03\x00\x00\x00\x05", io.ErrUnexpectedEOF},
		"half a payload":        {"\x03\x00\x00\x00\x05abc", io.ErrUnexpectedEOF},
		"output too long":       {"\x03\x00\x01\x00\x01", ErrFrame},
		"document too long":     {"\x07\xff\xff\xff\xff{}", ErrFrame},
		"alive with a payload":  {"\x05\x00\x00\x00\x01x", ErrFrame},
		"unknown and too long":  {"\x63\x7f\xff\xff\xff", ErrFrame},
		"a document's half end": {"\x07\x00\x3f\xff\xff{\"code\":1}", io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if f, err := NewReader(strings.NewReader(row.in)).Next(); !errors.Is(err, row.want) {
				t.Errorf("%v, %v, want %v", f, err, row.want)
			}
		})
	}
	for _, payload := range []string{"", "1234567", "\xff\xff\xff\xff\xff\xff\xff\xff"} {
		if n, err := (Frame{Type: FrameLost, Payload: []byte(payload)}).Lost(); !errors.Is(err, ErrFrame) {
			t.Errorf("%q: %d, %v", payload, n, err)
		}
	}
}

func TestCommandCheck(t *testing.T) {
	t.Parallel()
	if err := (Command{Argv: []string{"sh", "", "é"}, Env: []string{"A=", "B=x=y"}}).Check(); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]Command{
		"no command":        {},
		"no program":        {Argv: []string{""}},
		"zero byte":         {Argv: []string{"a\x00b"}},
		"no UTF-8":          {Argv: []string{"a", "\xff"}},
		"no equals sign":    {Argv: []string{"a"}, Env: []string{"A"}},
		"no name":           {Argv: []string{"a"}, Env: []string{"=x"}},
		"zero byte in env":  {Argv: []string{"a"}, Env: []string{"A=\x00"}},
		"zero byte in dir":  {Argv: []string{"a"}, Dir: "/\x00"},
		"a negative timout": {Argv: []string{"a"}, TimeoutMS: -1},
	} {
		if c.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Whatever comes, a reader ends, takes no more memory than has come, and returns only frames that could have been sent.
func FuzzReader(f *testing.F) {
	f.Add([]byte("\x03\x00\x00\x00\x05hello\x07\x00\x00\x00\x0a{\"code\":1}"))
	f.Add(LostFrame(3))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewReader(bytes.NewReader(in))
		for read := 0; ; {
			frame, err := r.Next()
			if err != nil {
				return
			}
			if read += headLen + len(frame.Payload); read > len(in) || cap(r.buf) > 4*len(in)+4*MaxOutputFrame {
				t.Fatalf("%d bytes of %d, %d taken", read, len(in), cap(r.buf))
			}
			_, _ = frame.Lost()
			_ = frame.Decode(&Exit{})
		}
	})
}

// A name of any bytes goes through JSON, as it is where people can read it.
func TestName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"a b": `"a b"`, "é\n": `"é\n"`, "\xff": `{"bytes":"/w=="}`, "": `""`} {
		b, err := json.Marshal(Name(name))
		if err != nil || string(b) != want {
			t.Errorf("%q is %s, %v", name, b, err)
		}
		var got Name
		if err := json.Unmarshal(b, &got); err != nil || string(got) != name {
			t.Errorf("%q came as %q, %v", name, got, err)
		}
	}
	for _, wrong := range []string{"7", "[]", `{"bytes":7}`} {
		var got Name
		if err := json.Unmarshal([]byte(wrong), &got); err == nil {
			t.Errorf("%s is %q", wrong, got)
		}
	}
	want := TransferSummary{Files: 1, Skipped: 2, Error: &Error{Code: CodeDenied, Text: "é\x7f\n"}}
	value, err := want.Trailer()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseTransferSummary(value); err != nil || got.Files != 1 || got.Skipped != 2 || *got.Error != *want.Error ||
		strings.ContainsAny(value, "\x7f\n") {
		t.Errorf("%q is %+v, %v", value, got, err)
	}
}
