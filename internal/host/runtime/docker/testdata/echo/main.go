// Command echo is the box that the conformance suite describes.
package main

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		os.Exit(1)
	}
	_, _ = os.Stdout.Write(in)
	_, _ = os.Stderr.WriteString("noise\n")
	if os.MkdirAll("/out", 0o755) != nil || os.WriteFile("/out/file", []byte("kept"), 0o644) != nil {
		os.Exit(1)
	}
	if bytes.Contains(in, []byte("wait")) {
		<-stop
	}
	os.Exit(7)
}
