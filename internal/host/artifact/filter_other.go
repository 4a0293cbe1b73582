//go:build !linux

package artifact

import "errors"

func filter() (name string, content []byte, err error) {
	return "", nil, errors.New("jails are of Linux: use the backend container")
}
