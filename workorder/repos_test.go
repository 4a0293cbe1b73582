package workorder

import "testing"

func TestRepositoriesOfAnOrder(t *testing.T) {
	t.Parallel()
	for what, repos := range map[string][]OrderRepo{
		"cloned twice": {{Name: "a", Repo: "/r", CloneURL: "/r"}, {Name: "b", Repo: "/r", CloneURL: "/r"}},
		"the name":     {{Name: "../a", Repo: "/r", CloneURL: "/r"}},
		"clone_url":    {{Name: "a", Repo: "/r"}},
	} {
		o := validOrder()
		if err := o.Check(); err != nil {
			t.Fatal(err)
		}
		if o.Repos = repos; o.Check() == nil {
			t.Error(what)
		}
	}
}
