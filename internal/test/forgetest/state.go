package forgetest

import (
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options say what repository a server has.
type Options struct {
	Owner, Name   string
	DefaultBranch string // "" is main
	// UserOwned makes the owner a user and not an organization.
	UserOwned bool
	// NoDrafts is a plan that has no draft pull requests.
	NoDrafts bool
	// PageSize bounds pages below what is asked for, so that few things make several pages; 0 means as asked.
	PageSize int
	// Branch tells of branches that SetBranch does not know, such as those of a real git server.
	Branch func(name string) (sha string, ok bool)
	// Clock gives the times of what is made; nil means one second later each time, from 2026-01-02.
	Clock func() time.Time
	// AppID and AppKey let a GitHub App in.
	AppID  string
	AppKey *rsa.PublicKey
}

// User is somebody with an account.
type User struct {
	// Permission is admin, maintain, write, triage, read or none ("").
	Permission string
	Bot        bool
	// Association as GitHub says it; "" follows from Permission.
	Association string
}

// Text is a comment or review.
type Text struct {
	ID      int64
	Author  string
	Body    string
	State   string // of a review
	At      time.Time
	Edited  time.Time
	Hidden  bool // minimized
	issue   int
	replyTo int64
}

// Thread is a review thread of a pull request.
type Thread struct {
	ID       string
	Path     string
	Line     int // 0 means none in the present version
	Outdated bool
	Resolved bool
	By       string // who resolved it
	Comments []Text
	Repo     string // owner/name of another repository that the tokens reach, "" for this one
	pull     int
}

// Issue is an issue or pull request.
type Issue struct {
	Number int
	Author string
	Title  string
	Body   string
	State  string // open or closed
	Labels []string
	At     time.Time
	Pull   *Pull // nil means an issue
}

// Pull is what a pull request has beyond an issue.
type Pull struct {
	Head, Base string
	HeadRepo   string // owner/name of a fork, "" for the repository itself
	Draft      bool
	Merged     bool
	Reviewers  []string
	Teams      []string
}

// Request is a request that was answered.
type Request struct {
	Method, Path string
	Op           string // operation id of the description, "graphql", "" for none
	Login        string // of the token
	Status       int    // 0 means the connection was broken
	Body         string
}

// Fault is bad luck for the next requests that match.
type Fault struct {
	Op     string // operation id, "graphql"; "" for any
	Query  string // words that the request's body has to have in it
	Times  int    // 0 is once
	Status int
	Header map[string]string
	Body   string
	After  bool // carry the request out first
	Drop   bool // break the connection in place of an answer
}

// Server is the forge. All methods may be used at any time.
type Server struct {
	opt  Options
	desc *description

	mu         sync.Mutex
	users      map[string]User
	tokens     map[string]string // token → login
	teams      []string
	branches   map[string]string
	labels     []string
	issues     []*Issue
	comments   []*Text
	reviews    []*Text
	threads    []*Thread
	minted     int
	lastID     int64
	clock      time.Time
	faults     []*Fault
	requests   []Request
	violations []string
}

// New makes a server.
func New(opt Options) *Server {
	if opt.DefaultBranch == "" {
		opt.DefaultBranch = "main"
	}
	s := &Server{
		opt: opt, desc: load(), users: map[string]User{}, tokens: map[string]string{}, branches: map[string]string{},
		lastID: 1000, clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	s.branches[opt.DefaultBranch] = SHA(opt.DefaultBranch)
	return s
}

// SHA makes a commit id of a text.
func SHA(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:20])
}

func (s *Server) now() time.Time {
	if s.opt.Clock != nil {
		return s.opt.Clock().UTC().Truncate(time.Second)
	}
	s.clock = s.clock.Add(time.Second)
	return s.clock
}

func (s *Server) id() int64 { s.lastID++; return s.lastID }

// AddUser makes an account, or changes it.
func (s *Server) AddUser(login string, u User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[login] = u
}

// AddToken lets a token in, as the given user.
func (s *Server) AddToken(token, login string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = login
}

// RevokeTokens forgets all tokens, installation tokens included.
func (s *Server) RevokeTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

// AddTeam makes a team that can be asked for reviews.
func (s *Server) AddTeam(slug string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.teams = append(s.teams, slug)
}

// AddLabel makes a label.
func (s *Server) AddLabel(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.labels = append(s.labels, name)
}

// SetBranch makes or moves a branch; an empty commit removes it.
func (s *Server) SetBranch(name, sha string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.branches[name] = sha
	if sha == "" {
		delete(s.branches, name)
	}
}

func (s *Server) branch(name string) (string, bool) {
	sha, ok := s.branches[name]
	if !ok && s.opt.Branch != nil {
		return s.opt.Branch(name)
	}
	return sha, ok
}

// AddIssue makes an issue and returns its number.
func (s *Server) AddIssue(author, title, body string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(&Issue{Author: author, Title: title, Body: body}).Number
}

// AddPull makes a pull request as somebody else than the client would, and returns its number.
func (s *Server) AddPull(author, title, body string, p Pull) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(&Issue{Author: author, Title: title, Body: body, Pull: &p}).Number
}

func (s *Server) add(i *Issue) *Issue {
	i.Number, i.State, i.At = len(s.issues)+1, "open", s.now()
	s.issues = append(s.issues, i)
	return i
}

// Close closes an issue or pull request, merged if it is so.
func (s *Server) Close(number int, merged bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.issue(number); i != nil {
		i.State = "closed"
		if i.Pull != nil {
			i.Pull.Merged = merged
		}
	}
}

// AddComment makes a comment on an issue or pull request.
func (s *Server) AddComment(number int, author, body string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.comment(number, author, body).ID
}

func (s *Server) comment(number int, author, body string) *Text {
	now := s.now()
	t := &Text{ID: s.id(), Author: author, Body: body, At: now, Edited: now, issue: number}
	s.comments = append(s.comments, t)
	return t
}

// AddReview makes a review: APPROVED, CHANGES_REQUESTED, COMMENTED, DISMISSED or PENDING.
func (s *Server) AddReview(number int, author, state, body string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &Text{ID: s.id(), Author: author, Body: body, State: state, At: s.now(), issue: number}
	s.reviews = append(s.reviews, t)
	return t.ID
}

// AddThread begins a review thread at the place that t says, with a first comment, and returns its id.
func (s *Server) AddThread(number int, t Thread, author, body string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.ID, t.pull = fmt.Sprintf("PRRT_%d", s.id()), number
	t.Comments = []Text{{ID: s.id(), Author: author, Body: body, At: s.now(), issue: number}}
	s.threads = append(s.threads, &t)
	return t.ID
}

// AddReply adds a comment to a review thread, hidden by a maintainer if it is so.
func (s *Server) AddReply(thread, author, body string, hidden bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.thread(thread); t != nil {
		t.Comments = append(t.Comments, Text{
			ID: s.id(), Author: author, Body: body, At: s.now(), Hidden: hidden, issue: t.pull,
			replyTo: t.Comments[0].ID,
		})
	}
}

func (s *Server) issue(number int) *Issue {
	if number < 1 || number > len(s.issues) {
		return nil
	}
	return s.issues[number-1]
}

func (s *Server) thread(id string) *Thread {
	for _, t := range s.threads {
		if t.ID == id {
			return t
		}
	}
	return nil
}

// Issue returns what is stored of an issue or pull request.
func (s *Server) Issue(number int) (Issue, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.issue(number)
	if i == nil {
		return Issue{}, false
	}
	out := *i
	out.Labels = slices.Clone(i.Labels)
	if i.Pull != nil {
		p := *i.Pull
		p.Reviewers, p.Teams = slices.Clone(p.Reviewers), slices.Clone(p.Teams)
		out.Pull = &p
	}
	return out, true
}

// Pulls returns the numbers of all pull requests.
func (s *Server) Pulls() (numbers []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.issues {
		if i.Pull != nil {
			numbers = append(numbers, i.Number)
		}
	}
	return numbers
}

// Comments returns the comments on an issue or pull request.
func (s *Server) Comments(number int) (out []Text) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.comments {
		if t.issue == number {
			out = append(out, *t)
		}
	}
	return out
}

// Threads returns the review threads of a pull request.
func (s *Server) Threads(number int) (out []Thread) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.threads {
		if t.pull == number {
			c := *t
			c.Comments = slices.Clone(t.Comments)
			out = append(out, c)
		}
	}
	return out
}

// Inject adds bad luck.
func (s *Server) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Times = max(f.Times, 1)
	s.faults = append(s.faults, &f)
}

// ClearFaults ends the bad luck.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// Requests returns what was asked so far, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Violations says which requests, or answers of this server, did not fit the description.
func (s *Server) Violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.violations)
}

func (s *Server) violation(format string, a ...any) {
	s.violations = append(s.violations, strings.TrimSpace(fmt.Sprintf(format, a...)))
}
