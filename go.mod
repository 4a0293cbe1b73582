module github.com/sandbox-agent/sandbox-agent

go 1.26

require golang.org/x/sys v0.47.0 // indirect
