package workorder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
)

// Standby is the document of a box that starts before its order: it starts the services and waits. It has no secrets.
type Standby struct {
	Version int    `json:"version"`
	ID      string `json:"id"` // in the form of a task id; new for every box
	BoxSpec        // only the fields that Order.Standby sets
	// Hosts are the order's TrustedHosts.
	Hosts []string `json:"hosts,omitempty"`
}

// StandbyMark begins the document of a box that starts before its order. A line feed ends the document, and the order follows.
const StandbyMark = `{"standby":`

// Frame returns the document as PID 1 reads it.
func (s Standby) Frame() ([]byte, error) {
	b, err := json.Marshal(document{Standby: &s})
	return append(b, '\n'), err
}

// Standby returns the standby that can take the order, without an id.
func (o *Order) Standby() Standby {
	return Standby{
		Version: o.Version,
		BoxSpec: BoxSpec{
			Image: o.Image, ImageID: o.ImageID, Isolation: o.Isolation, OCIRuntime: o.OCIRuntime, Supabase: o.Supabase, Services: o.Services,
			Network: o.Network, Limits: Limits{MemoryBytes: o.Limits.MemoryBytes, PIDs: o.Limits.PIDs}, HostImages: o.HostImages, MTU: o.MTU,
		},
		Hosts: TrustedHosts(o),
	}
}

// Takes reports whether the box can take an order.
func (s Standby) Takes(o *Order) bool {
	want := o.Standby()
	want.ID = s.ID
	a, aerr := json.Marshal(s)
	b, berr := json.Marshal(want)
	return aerr == nil && berr == nil && bytes.Equal(a, b)
}

func (s *Standby) check() error {
	var p problems
	p.require(s.Version == Version, "standby has version %d, this program reads version %d: use a CLI and an image of the same release",
		s.Version, Version)
	p.require(ValidTaskID(s.ID), "standby id %q is not T- and 8 of 0-9A-Z", s.ID)
	s.checkSpec(&p)
	return errors.Join(p.errs...)
}

// TrustedHosts returns the servers that boot talks to: those of repositories and of models.
func TrustedHosts(o *Order) []string {
	hosts := []string{HostOf(o.CloneURL)}
	for i := range o.Repos {
		hosts = append(hosts, HostOf(o.Repos[i].CloneURL))
	}
	for _, r := range o.Gateway.Routes {
		hosts = append(hosts, HostOf(r.BaseURL))
	}
	return slices.DeleteFunc(hosts, func(h string) bool { return h == "" })
}

// HostOf returns the host of a URL, or of git's user@host:path; empty if it has none.
func HostOf(remote string) string {
	if u, err := url.Parse(remote); err == nil && u.Host != "" {
		return u.Hostname()
	}
	before, _, ok := strings.Cut(remote, ":")
	if !ok || strings.Contains(before, "/") {
		return ""
	}
	return before[strings.LastIndex(before, "@")+1:]
}

// document is what PID 1 reads: an envelope or a standby.
type document struct {
	Standby *Standby `json:"standby,omitempty"`
	*Envelope
}

// Input reads the documents on the standard input of a box: an envelope, or a standby and then an envelope.
type Input struct {
	limit *io.LimitedReader
	dec   *json.Decoder
}

// NewInput returns the documents of r.
func NewInput(r io.Reader) *Input {
	in := &Input{limit: &io.LimitedReader{R: r}}
	in.dec = json.NewDecoder(in.limit)
	in.dec.DisallowUnknownFields()
	return in
}

// Next reads exactly one document, strictly, and validates it. It does not wait for the end of the input.
func (in *Input) Next() (*Standby, *Envelope, error) {
	in.limit.N = MaxEnvelope
	d := document{Envelope: &Envelope{}}
	if err := in.dec.Decode(&d); err != nil {
		return nil, nil, fmt.Errorf("read work order: %w", err)
	}
	if d.Standby != nil {
		return d.Standby, nil, d.Standby.check()
	}
	if err := d.Order.Check(); err != nil {
		return nil, nil, err
	}
	for _, n := range d.Order.SecretNames {
		if _, ok := d.Secrets[n]; !ok {
			return nil, nil, fmt.Errorf("work order without a value for the secret %s", n)
		}
	}
	return nil, d.Envelope, nil
}

// DecodeEnvelope reads one envelope like Input.Next.
func DecodeEnvelope(r io.Reader) (*Envelope, error) {
	_, env, err := NewInput(r).Next()
	if err == nil && env == nil {
		err = errors.New("read work order: the document is that of a standby")
	}
	return env, err
}
