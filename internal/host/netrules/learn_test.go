package netrules

import (
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestLearn(t *testing.T) {
	t.Parallel()
	ran := func(n int, mode workorder.NetworkMode, hosts ...string) Run {
		net := &workorder.NetworkReport{Mode: mode}
		for _, h := range hosts {
			net.Hosts = append(net.Hosts, workorder.NetworkHost{Host: h, Port: 443, Protocol: "tcp", Status: workorder.NetworkLearned, Count: 1})
		}
		return Run{Number: n, Result: &workorder.Result{Network: net}}
	}
	lost := Run{Number: 1, Asked: workorder.NetworkRestricted}
	for name, c := range map[string]struct {
		runs     []Run
		attempts []int
		mode     workorder.NetworkMode
		rules    int
		refused  bool
	}{
		"two attempts":                  {[]Run{ran(1, workorder.NetworkRestricted, "a.example"), ran(2, workorder.NetworkRestricted, "b.example")}, []int{1, 2}, workorder.NetworkRestricted, 2, false},
		"it needed nothing":             {[]Run{ran(1, workorder.NetworkRestricted)}, []int{1}, workorder.NetworkRestricted, 0, false},
		"full, of which nothing is set": {[]Run{ran(1, workorder.NetworkFull)}, nil, workorder.NetworkFull, 0, true},
		"lost before it began":          {[]Run{lost}, nil, workorder.NetworkRestricted, 0, true},
		"lost, then it went well":       {[]Run{lost, ran(2, workorder.NetworkRestricted, "a.example")}, []int{2}, workorder.NetworkRestricted, 1, false},
		"the last one says nothing":     {[]Run{ran(1, workorder.NetworkRestricted, "a.example"), {Number: 2}}, []int{1}, workorder.NetworkRestricted, 1, false},
	} {
		l, err := Learn("T-A1B2C3D4", c.runs, Options{})
		if (err != nil) != c.refused || !slices.Equal(l.Attempts, c.attempts) || l.Mode != c.mode || len(l.Allow) != c.rules {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
}
