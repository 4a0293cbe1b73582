package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// requests is the number of samples of each kind.
const requests = 300

// measure prints how long requests take, in microseconds: for the bench, not an attempt.
func measure(c *Config) error {
	// Looked up once: a restricted box answers from its cache, which would be counted in its favour.
	all, err := net.DefaultResolver.LookupHost(context.Background(), allowedName)
	if err != nil {
		return err
	}
	known := func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, strings.Replace(addr, allowedName, all[0], 1))
	}
	fresh := http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: known, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the certificate is self-signed
	}}
	kept := http.Client{Timeout: patience}
	samples := map[string][]int64{}
	for range requests {
		for name, one := range map[string]func() error{
			"http, new connection":          func() error { return fetch(&fresh, "http://"+allowedName+"/m") },
			"https, new connection":         func() error { return fetch(&fresh, "https://"+allowedName+"/m") },
			"http, same connection":         func() error { return fetch(&kept, "http://"+allowedName+"/m") },
			"model, straight to its server": func() error { return fetch(&kept, c.ModelURL+"/v1/models") },
			"model, by the gateway": func() error {
				_, _, _, err := model("/v1/messages/count_tokens", os.Getenv("ANTHROPIC_API_KEY"), `{"model":"claude-sonnet-4-5","messages":[]}`)
				return err
			},
		} {
			begin := time.Now()
			if err := one(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			samples[name] = append(samples[name], time.Since(begin).Microseconds())
		}
	}
	return json.NewEncoder(os.Stdout).Encode(samples)
}

func fetch(client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}
