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
	"maps"
	"slices"
	"strings"
	"sync"
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
	contents   func() (map[string][]byte, error) // of files, read once
	parts      []string
	entrypoint *Packed // nil for the small image
}

// Box returns the source of the box's image with these parts, and with its program for one architecture.
func Box(entrypoint Packed, parts ...string) *Source { return From(files, &entrypoint).With(parts) }

// With returns the source with these parts instead.
func (s *Source) With(parts []string) *Source {
	c := *s
	c.parts = parts
	return &c
}

// Small returns the source of the small image, which is the same for all architectures.
func Small() (*Source, error) {
	files, err := fs.Sub(smallFiles, "small")
	if err != nil {
		return nil, fmt.Errorf("read the small image's files: %w", err)
	}
	return From(files, nil), nil
}

// Parts returns the source's parts, in the order of their layers.
func (s *Source) Parts() []string {
	return slices.DeleteFunc(partsOf(s.files), func(name string) bool { return !slices.Contains(s.parts, name) })
}

// From returns the source made of other files, laid out as here.
func From(files fs.FS, entrypoint *Packed) *Source {
	return &Source{
		files: files, entrypoint: entrypoint, contents: sync.OnceValues(func() (map[string][]byte, error) { return contents(files) }),
	}
}

// Packed is a compressed program. Unpacking takes longer than starting a jail, so callers cache it by its Hash.
type Packed struct {
	// Hash is the SHA-256 of the program, in hexadecimal digits.
	Hash string
	Size int64
	// Unpack returns the program.
	Unpack func() ([]byte, error)
}

// Of returns a program that is not compressed.
func Of(program []byte) Packed {
	sum := sha256.Sum256(program)
	return Packed{hex.EncodeToString(sum[:]), int64(len(program)), func() ([]byte, error) { return program, nil }}
}

// Program returns the embedded program name, guest or entrypoint, for the Go architecture arch.
func Program(name, arch string) (Packed, error) { return packed(binaries, name, arch) }

func packed(from fs.FS, name, arch string) (p Packed, err error) {
	file := "entrypoint/" + name + "-linux-" + arch
	sum, err := fs.ReadFile(from, file+".sum")
	if errors.Is(err, fs.ErrNotExist) {
		return p, fmt.Errorf("%w for linux/%s: in a checkout run `make build`", ErrNoEntrypoint, arch)
	}
	f, oerr := from.Open(file + ".gz")
	if err = errors.Join(err, oerr); err != nil {
		return p, fmt.Errorf("read the %s's binary: %w", name, err)
	}
	defer f.Close()
	// Only the parts of an embedded file that are read take memory. The packer has written the length last.
	st, err := f.Stat()
	var length [4]byte
	if err == nil {
		_, err = f.(io.ReaderAt).ReadAt(length[:], st.Size()-int64(len(length)))
	}
	if err != nil {
		return p, fmt.Errorf("read the %s's binary: %w", name, err)
	}
	p = Packed{Hash: strings.TrimSpace(string(sum)), Size: int64(binary.LittleEndian.Uint32(length[:]))}
	p.Unpack = func() ([]byte, error) {
		b, err := unpack(from, file+".gz")
		if err != nil {
			return nil, err
		}
		if h := sha256.Sum256(b); hex.EncodeToString(h[:]) != p.Hash {
			return nil, fmt.Errorf("the %s's binary for linux/%s differs from this CLI's checksum: run `make build`", name, arch)
		}
		return b, nil
	}
	return p, nil
}

func unpack(from fs.FS, name string) ([]byte, error) {
	b, err := fs.ReadFile(from, name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", name, err)
	}
	out, err := io.ReadAll(io.LimitReader(z, maxEntrypoint))
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", name, err)
	}
	return out, nil
}

// Hash names the content without the host's additions. It does not unpack the program.
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
	if s.entrypoint != nil {
		h.Write([]byte(s.entrypoint.Hash))
	}
	return hex.EncodeToString(h.Sum(nil))[:hashLength], nil
}

const dockerfileName = "Dockerfile"

// walk visits the Dockerfile and every file that it copies but the program, in a fixed order.
func (s *Source) walk(visit func(name string, content []byte, mode int64) error) error {
	all, err := s.contents()
	if err != nil {
		return err
	}
	instructions := dockerfile(all[dockerfileName], s.parts)
	wanted := copied(instructions)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		content := all[name]
		if name == dockerfileName {
			content = instructions
		} else if !slices.ContainsFunc(wanted, func(w string) bool {
			return name == w || strings.HasPrefix(name, strings.TrimSuffix(w, "/")+"/")
		}) {
			continue
		}
		if err := visit(name, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// contents reads all files, and adds those of the packages.
func contents(from fs.FS) (map[string][]byte, error) {
	all := map[string][]byte{}
	err := fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all[name], err = fs.ReadFile(from, name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the image's files: %w", err)
	}
	return all, addPackages(all)
}
