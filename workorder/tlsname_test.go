package workorder

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"
)

// realHello is the ClientHello that Go's client sends.
func realHello(t *testing.T, name string) []byte {
	t.Helper()
	a, b := net.Pipe()
	go func() {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_ = tls.Client(a, &tls.Config{ServerName: name, InsecureSkipVerify: true}).HandshakeContext(ctx)
		a.Close()
	}()
	defer b.Close()
	head := make([]byte, 5)
	if _, err := io.ReadFull(b, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(b, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// record wraps a piece of a handshake.
func record(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{TLSHandshake, 3, 1}, uint16(len(b))), b...)
}

func extension(typ int, data []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(typ))
	return append(binary.BigEndian.AppendUint16(b, uint16(len(data))), data...)
}

func sni(entries ...string) []byte {
	var list []byte
	for _, e := range entries {
		list = append(binary.BigEndian.AppendUint16(append(list, 0), uint16(len(e))), e...)
	}
	return extension(0, append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...))
}

// madeHello is a ClientHello with these extensions.
func madeHello(exts ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0)
	all := bytes.Join(exts, nil)
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(all))), all...)
	n := len(body)
	return append([]byte{1, byte(n >> 16), byte(n >> 8), byte(n)}, body...)
}

func TestClientHello(t *testing.T) {
	hello := realHello(t, "Registry.Example.com")
	msg := hello[5:]
	var split []byte
	for i := range msg {
		split = append(split, record(msg[i:i+1])...)
	}
	huge := madeHello(extension(21, make([]byte, 40000)), sni("huge.example"))
	hugeRecords := append(append(record(huge[:16000]), record(huge[16000:32000])...), record(huge[32000:])...)
	for name, c := range map[string]struct {
		in   []byte
		want string
		err  error
	}{
		"real":                   {hello, "Registry.Example.com", nil},
		"one byte a record":      {split, "Registry.Example.com", nil},
		"40 kB of padding":       {hugeRecords, "huge.example", nil},
		"no name":                {record(madeHello()), "", nil},
		"odd bytes":              {record(madeHello(sni("a\x00b"))), "a\x00b", nil}, // for the policy to refuse
		"encrypted, with GREASE": {record(madeHello(extension(0xfe0d, make([]byte, 50)), sni("outer.example"))), "outer.example", nil},
		"name twice":             {record(madeHello(sni("a.example"), sni("b.example"))), "", ErrClientHello},
		"two names":              {record(madeHello(sni("a.example", "b.example"))), "", ErrClientHello},
		"empty name":             {record(madeHello(sni(""))), "", ErrClientHello},
		"other name type":        {record(madeHello(extension(0, []byte{0, 4, 7, 0, 1, 'a'}))), "", nil},
		"trailing bytes":         {record(append(madeHello(sni("a.example")), 0)), "a.example", nil},
		"cut extension":          {record(madeHello(sni("a.example")[:8])), "", ErrClientHello},
		"not a hello":            {record([]byte{2, 0, 0, 0}), "", ErrClientHello},
		"alert in between":       {append(record(msg[:10]), 21, 3, 1, 0, 2, 1, 0), "", ErrClientHello},
		"empty record":           {record(nil), "", ErrClientHello},
		"too long":               {record([]byte{1, 1, 0, 0}), "", io.EOF},
		"record too long":        {[]byte{TLSHandshake, 3, 1, 0x40, 1}, "", io.EOF},
		"SSL 2":                  {[]byte{0x80, 0x2e, 1, 3, 1, 0}, "", ErrClientHello},
		"cut":                    {hello[:len(hello)-1], "", io.EOF},
		"nothing":                {nil, "", io.EOF},
	} {
		for _, r := range []io.Reader{bytes.NewReader(c.in), iotest.OneByteReader(bytes.NewReader(c.in))} {
			got, err := TLSName(r)
			if got != c.want || !errors.Is(err, c.err) {
				t.Errorf("%s: %q, %v; want %q, %v", name, got, err, c.want, c.err)
			}
		}
	}
	// An endless row of records ends.
	endless := bytes.NewReader(append(record([]byte{1, 0, 0xff, 0xfb}), bytes.Repeat(record([]byte{0}), 2*MaxClientHello)...))
	if _, err := TLSName(endless); err == nil || endless.Len() < MaxClientHello {
		t.Errorf("%v, and %d bytes are left", err, endless.Len())
	}
}

// FuzzClientHello wants no crash, and that a name which is accepted is in the bytes.
func FuzzClientHello(f *testing.F) {
	// No real one: they are random, and the workers want the same seeds.
	f.Add(record(madeHello(extension(16, []byte{0, 3, 2, 'h', '2'}), sni("registry.example.com"), extension(43, []byte{2, 3, 4}))))
	f.Add(record(madeHello(sni("a.example"))))
	f.Add(append(record(madeHello(sni("a.example"))[:20]), record(madeHello(sni("a.example"))[20:])...))
	f.Add(record(madeHello(sni("a.example"), sni("b.example"))))
	f.Fuzz(func(t *testing.T, b []byte) {
		name, err := TLSName(bytes.NewReader(b))
		if err != nil && name != "" {
			t.Errorf("a name with an error: %q %v", name, err)
		}
		if err == nil && !bytes.Contains(b, []byte{1}) {
			t.Errorf("%q without a message", name)
		}
	})
}
