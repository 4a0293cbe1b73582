// Command echo is the box that the conformance suite describes.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "size" {
		sizes()
	}
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

// sizes prints the size of its terminal whenever it is another, and ends with 7 when that is 7 columns wide, or there is no terminal.
func sizes() {
	last := ""
	for {
		size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
		if err != nil {
			fmt.Println("no terminal")
			os.Exit(7)
		}
		if now := fmt.Sprintf("%dx%d", size.Col, size.Row); now != last {
			fmt.Println(now)
			last = now
		}
		if size.Col == 7 {
			os.Exit(7)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
