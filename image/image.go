// Package image embeds the files of the box image and of the small image, packs them as a build context and names their content.
package image

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
)

//go:embed Dockerfile build packages rootfs
var files embed.FS

//go:embed small
var smallFiles embed.FS

// The directory always holds a file, so that a clean clone compiles.
//
//go:embed entrypoint
var binaries embed.FS

// ErrNoEntrypoint reports that no program to run inside is embedded.
var ErrNoEntrypoint = errors.New("this build embeds no guest program")

// maxEntrypoint bounds the unpacked program, which has about a tenth of it.
const maxEntrypoint = 256 << 20

// hashLength is how much of a content hash a name has: 48 bits distinguish the images of one machine.
const hashLength = 12

// Host is the host's settings with which the build reaches its archives.
type Host struct {
	// CAs are certificates (PEM) that the image trusts beside the distribution's.
	CAs map[string][]byte
	// Registry is the URL of the npm registry; empty means npm's own default.
	Registry string
}

// Source is the content of an image for one architecture.
type Source struct {
	files      fs.FS
	entrypoint []byte // empty for the small image
}

// Box returns the source of the box's image, with its program for one architecture.
func Box(entrypoint []byte) *Source { return From(files, entrypoint) }

// Small returns the source of the small image, which is the same for all architectures.
func Small() (*Source, error) {
	files, err := fs.Sub(smallFiles, "small")
	if err != nil {
		return nil, fmt.Errorf("read the small image's files: %w", err)
	}
	return From(files, nil), nil
}

// From returns the source made of other files, laid out as here.
func From(files fs.FS, entrypoint []byte) *Source {
	return &Source{files: files, entrypoint: entrypoint}
}

// Program returns the embedded program name, guest or entrypoint, for the Go architecture arch.
func Program(name, arch string) ([]byte, error) { return unpack(binaries, name, arch) }

// PackedGuest is the embedded, compressed guest. Unpacking takes longer than starting a jail, so callers cache it by its Hash.
type PackedGuest struct {
	// Hash is the SHA-256 of the program, in hexadecimal digits.
	Hash string
	Size int64
	// Unpack returns the program.
	Unpack func() ([]byte, error)
}

// Packed returns the guest for the Go architecture arch.
func Packed(arch string) (PackedGuest, error) { return packedGuest(binaries, arch) }

func packedGuest(from fs.FS, arch string) (p PackedGuest, err error) {
	sum, err := fs.ReadFile(from, "entrypoint/guest-linux-"+arch+".sum")
	if errors.Is(err, fs.ErrNotExist) {
		return p, noEntrypoint(arch)
	}
	f, oerr := from.Open(packedName("guest", arch))
	if err = errors.Join(err, oerr); err != nil {
		return p, fmt.Errorf("read the guest's binary: %w", err)
	}
	defer f.Close()
	// Only the parts of an embedded file that are read take memory. The packer has written the length last.
	st, err := f.Stat()
	var length [4]byte
	if err == nil {
		_, err = f.(io.ReaderAt).ReadAt(length[:], st.Size()-int64(len(length)))
	}
	if err != nil {
		return p, fmt.Errorf("read the guest's binary: %w", err)
	}
	p = PackedGuest{Hash: strings.TrimSpace(string(sum)), Size: int64(binary.LittleEndian.Uint32(length[:]))}
	p.Unpack = func() ([]byte, error) {
		b, err := unpack(from, "guest", arch)
		if err != nil {
			return nil, err
		}
		if h := sha256.Sum256(b); hex.EncodeToString(h[:]) != p.Hash {
			return nil, fmt.Errorf("the guest's binary for linux/%s differs from this CLI's checksum: run `make build`", arch)
		}
		return b, nil
	}
	return p, nil
}

func packedName(program, arch string) string {
	return "entrypoint/" + program + "-linux-" + arch + ".gz"
}

func noEntrypoint(arch string) error {
	return fmt.Errorf("%w for linux/%s: in a checkout run `make build`", ErrNoEntrypoint, arch)
}

func unpack(from fs.FS, program, arch string) ([]byte, error) {
	name := packedName(program, arch)
	b, err := fs.ReadFile(from, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noEntrypoint(arch)
	}
	if err != nil {
		return nil, fmt.Errorf("read the guest's binary: %w", err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("unpack the guest's binary %s: %w", name, err)
	}
	out, err := io.ReadAll(io.LimitReader(z, maxEntrypoint))
	if err != nil {
		return nil, fmt.Errorf("unpack the guest's binary %s: %w", name, err)
	}
	return out, nil
}

// Hash names the content without the host's additions.
func (s *Source) Hash() (string, error) {
	h := sha256.New()
	err := s.walk(func(name string, b []byte, _ int64) error {
		h.Write(fmt.Appendf(nil, "%d %s %d\n", len(name), name, len(b)))
		h.Write(b)
		return nil
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil))[:hashLength], nil
}

// walk visits every file of the source in a fixed order.
func (s *Source) walk(visit func(name string, content []byte, mode int64) error) error {
	var names []string
	err := fs.WalkDir(s.files, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list the image's files: %w", err)
	}
	slices.SortFunc(names, strings.Compare)
	for _, name := range names {
		b, err := fs.ReadFile(s.files, name)
		if err != nil {
			return fmt.Errorf("read the image's files: %w", err)
		}
		if err := visit(name, b, 0o644); err != nil {
			return err
		}
	}
	if s.entrypoint == nil {
		return nil
	}
	return visit("entrypoint/entrypoint", s.entrypoint, 0o755)
}
