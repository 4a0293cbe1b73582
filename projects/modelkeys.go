package projects

import (
	"cmp"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// KeyNames returns the variables of which the harness needs one, in order of preference; none if it needs no key or its needs are unknown.
func (p *Project) KeyNames() (names []string) {
	for _, api := range p.keyAPIs() {
		names = append(names, api.KeyVariables()...)
	}
	return names
}

// IsKey reports whether a secret is one of KeyNames.
func (p *Project) IsKey(s Secret) bool {
	switch s.Use {
	case workorder.SecretForAgent:
		return slices.Contains(p.KeyNames(), s.Name)
	case workorder.SecretForGateway:
		apis := p.keyAPIs()
		return p.opens(s, func(a workorder.ModelAPI) bool { return slices.Contains(apis, a) })
	}
	return false
}

// IsIdle reports whether a secret is only a key of models that the harness does not use.
func (p *Project) IsIdle(s Secret) bool {
	apis := p.keyAPIs()
	return len(apis) > 0 && s.Use == workorder.SecretForGateway &&
		!p.opens(s, func(a workorder.ModelAPI) bool { return slices.Contains(apis, a) })
}

// opens reports whether the secret is a key of one of the APIs.
func (p *Project) opens(s Secret, such func(workorder.ModelAPI) bool) bool {
	return slices.ContainsFunc(p.Gateway.Routes, func(r workorder.ModelRoute) bool { return such(r.API) && slices.Contains(r.Keys, s.Name) })
}

// LeaveOut removes secrets without a value on the host.
func (p *Project) LeaveOut(names []string) {
	p.Secrets = slices.DeleteFunc(slices.Clone(p.Secrets), func(s Secret) bool { return slices.Contains(names, s.Name) })
	p.Gateway = p.Gateway.Without(names)
}

// TakeKey gives the gateway a key that the file does not name. An empty baseURL means the provider's own server.
func (p *Project) TakeKey(name string, from Ref, baseURL string) {
	api := workorder.ModelAPIOfKey(name)
	baseURL = cmp.Or(baseURL, api.DefaultBaseURL())
	p.Secrets = append(slices.Clone(p.Secrets), Secret{Name: name, From: []Ref{from}, Use: workorder.SecretForGateway})
	p.Gateway.Routes = append(slices.Clone(p.Gateway.Routes), workorder.ModelRoute{API: api, BaseURL: baseURL, Keys: []string{name}})
}
