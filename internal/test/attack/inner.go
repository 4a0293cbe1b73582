package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// inside is what the program does in a container for an attempt on the outside of it.
func inside(args []string) error {
	switch args[0] {
	case "version":
		fmt.Printf("attack as uid %d\n", os.Getuid())
	case "sleep":
		time.Sleep(containerTime)
	case "touch":
		return os.WriteFile(args[1], nil, 0o644)
	case "privileged":
		got, _ := create(apiVersion, `"HostConfig":{"Privileged":true}`)
		fmt.Println(got)
	case "read":
		return readAll(args[1])
	}
	return nil
}

// readAll says what can be read of a directory that the agent must not see.
func readAll(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // unreadable
		}
		// The repositories of the gateway hold what the agent may fetch anyway.
		if strings.Contains(p, "/git/") {
			return nil
		}
		if b, err := os.ReadFile(p); err == nil && len(b) > 0 {
			fmt.Println("READ", p)
		}
		return nil
	})
}

const innerGroup = "network of inner containers"

// place is a container from which the network is tried.
type place struct {
	from string // before the attempt's name
	host string // fields of HostConfig
}

func places(c *Config) []place {
	return []place{
		{"container: ", ""},
		{"container on a network of its own: ", `"NetworkMode":"attack-net"`},
		{"container with a resolver of its own: ", `"NetworkMode":"attack-net","Dns":["` + c.Host + `"]`},
	}
}

// innerNetwork tries what network has from inner containers: on the default bridge,
// on a network of its own, and with a resolver of its own.
func innerNetwork(c *Config, each func(Row) error) error {
	var r struct{ ID string }
	code, b, err := docker("POST", apiVersion+"/networks/create", `{"Name":"attack-net"}`)
	if err != nil || code != 201 || json.Unmarshal(b, &r) != nil {
		return fmt.Errorf("make a network: %d %s %w", code, message(b), err)
	}
	defer func() { _, _, _ = docker("DELETE", apiVersion+"/networks/"+r.ID, "") }()
	for _, place := range places(c) {
		out, err := printed(place.host, "network", "/config.json")
		tried := 0
		for line := range strings.Lines(out) {
			var r Row
			if json.Unmarshal([]byte(line), &r) != nil {
				continue
			}
			tried++
			r.Group, r.Name = innerGroup, place.from+r.Name
			if err := each(r); err != nil {
				return err
			}
		}
		if want := len(innerAttempts()); tried != want {
			return fmt.Errorf("%s%d of %d attempts were made: %w: %s", place.from, tried, want, err, out)
		}
	}
	return nil
}

// innerAttempts are those on the network that can be tried from anywhere.
func innerAttempts() []attempt {
	return slices.DeleteFunc(network(), func(a attempt) bool { return !a.inner })
}
