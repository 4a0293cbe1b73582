// Package wirehttp writes answers of the wire protocol: a document or an error.
package wirehttp

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Document writes a document as the answer.
func Document(w http.ResponseWriter, document any) error {
	b, err := json.Marshal(document)
	if err != nil {
		return Failed("encode the answer", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // the client may be gone
	return nil
}

// Error writes an error as the answer: a *wire.Error in it, or one of CodeFailed.
func Error(w http.ResponseWriter, err error) {
	e := &wire.Error{Code: wire.CodeFailed, Text: err.Error()}
	errors.As(err, &e)
	status := map[wire.Code]int{
		wire.CodeBadRequest: http.StatusBadRequest, wire.CodeNotFound: http.StatusNotFound, wire.CodeRefused: http.StatusBadGateway,
		wire.CodeExhausted: http.StatusTooManyRequests, wire.CodeDenied: http.StatusForbidden, wire.CodeExists: http.StatusConflict,
		wire.CodeFileType:    http.StatusConflict,
		wire.CodeUnsupported: http.StatusNotImplemented,
	}[e.Code]
	status = cmp.Or(status, http.StatusInternalServerError)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(e) // the client may be gone
}

// Failed returns the error of a failed operation.
func Failed(doing string, err error) error {
	return &wire.Error{Code: wire.CodeFailed, Text: doing + ": " + err.Error()}
}
