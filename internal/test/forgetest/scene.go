package forgetest

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Writes counts the requests that were to change something.
func (s *Server) Writes() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if r.Op == "graphql" && strings.Contains(r.Body, "mutation") || r.Op != "graphql" && r.Method != http.MethodGet {
			n++
		}
	}
	return n
}

// Break breaks the connection of the next request that creates something.
func (s *Server) Break(what Creation, after bool) {
	s.Inject(Fault{Op: map[Creation]string{
		CreatePR: "pulls/create", CreateComment: "issues/create-comment", CreateReply: "pulls/create-reply-for-review-comment",
	}[what], Drop: true, After: after})
}

// Limit answers each request from now on that it is one too many.
func (s *Server) Limit(d time.Duration) {
	s.Inject(Fault{
		Status: http.StatusTooManyRequests, Times: 1 << 20,
		Header: map[string]string{"Retry-After": strconv.Itoa(int(d.Seconds()))},
	})
}

// Down answers no request any more.
func (s *Server) Down() {
	s.Inject(Fault{Status: http.StatusServiceUnavailable, Times: 1 << 20})
}
