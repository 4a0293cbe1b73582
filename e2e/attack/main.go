package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) > 0 && slices.Contains([]string{"version", "sleep", "touch", "privileged", "read"}, args[0]) {
		return inside(args)
	}
	if len(args) < 2 {
		return errors.New("usage: attack all FILE | attack one FILE NAME | attack traps FILE | attack measure FILE")
	}
	c, err := load(args[1])
	if err != nil {
		return err
	}
	if args[0] == "measure" {
		return measure(c)
	}
	enc := json.NewEncoder(os.Stdout)
	if args[0] == "traps" {
		return enc.Encode(sprung(c))
	}
	if args[0] == "one" && len(args) == 3 {
		all := network()
		i := slices.IndexFunc(all, func(a attempt) bool { return a.name == args[2] })
		if i < 0 {
			return fmt.Errorf("no attempt is called %q", args[2])
		}
		return enc.Encode(all[i].row(c, ""))
	}
	for _, group := range [][]attempt{root(), keys(), gatewayAttempts(), gitAttempts(), dockerAttempts(), network()} {
		for _, a := range group {
			if err := enc.Encode(a.row(c, "")); err != nil {
				return err
			}
		}
	}
	return innerNetwork(c, func(r Row) error { return enc.Encode(r) })
}
