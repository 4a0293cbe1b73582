package egress

import (
	"strings"
	"testing"
)

func TestRecognise(t *testing.T) {
	for in, want := range map[string]clientProtocol{
		"": clientUnclear, "G": clientUnclear, "GET": clientUnclear, "GET ": clientHTTP, "PROPFIND / ": clientHTTP, "PRI": clientUnclear,
		"PRI * HTTP/2.0": clientHTTP2, "PRI * HTTP/1.1": clientHTTP, "SSH-2.0-x": clientOther, "SSL /": clientHTTP, "\x16": clientTLS,
		"get /": clientOther, "\r\nGET /": clientOther, " GET /": clientOther, "\x80\x2e": clientOther, strings.Repeat("A", 25): clientOther, "G\x00": clientOther,
	} {
		if got := recognise([]byte(in)); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}
