package gateway

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A call with an unknown cost does not make the cost of the others unknown: the next attempt has to count it.
func TestCostInPart(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			dollar(w, r)
			return
		}
		message(w, `{"input_tokens":-10,"output_tokens":20}`)
	}, nil)
	b.SetBudget(new(5.0))
	b.post("/anthropic/v1/messages", ask1)
	before, _ := b.Usage()
	b.post("/anthropic/v1/messages", ask1)
	after, _ := b.Usage()
	if before.CostUSD == nil || *before.CostUSD <= 0 || before.Estimated {
		t.Fatalf("%+v cost %v", before, show(before.CostUSD))
	}
	if after.CostUSD == nil || *after.CostUSD != *before.CostUSD || after.CostSource != workorder.CostByGateway || !after.Estimated {
		t.Errorf("%+v cost %v, before %v", after, show(after.CostUSD), show(before.CostUSD))
	}
	if status, _, _ := b.post("/anthropic/v1/messages", ask1); status != 400 {
		t.Errorf("the budget cannot be kept, a call got %d", status)
	}
}

// A first call that was abandoned does not delay calls that the budget allows in addition to its highest
// cost.
func TestFirstCallGivenUp(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	arrived := make(chan struct{})
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			close(arrived)
			<-r.Context().Done()
			return
		}
		dollar(w, r)
	}, nil)
	b.SetBudget(new(5.0))
	_, hangUp := b.begin("/anthropic/v1/messages", ask1)
	<-arrived
	hangUp()
	waitFor(t, "the hang-up", func() bool { return b.abandoned() == 1 })
	if status, got, _ := b.post("/anthropic/v1/messages", ask1); status != 200 {
		t.Errorf("%d %s", status, got)
	}
	b.Stop()
}
