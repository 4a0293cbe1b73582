// Package demo is the sample that `sandbox-agent demo` runs: a project, a small
// repository with a failing test, the image of its service, and a scripted agent that fixes it.
package demo

import (
	"embed"
	"io/fs"
)

// ServiceImage is the name under which the project asks for its service.
const ServiceImage = "sandbox-agent-demo-redis"

// Task is what the scripted agent is asked to do.
const Task = "The tests fail. Find out why and fix the code."

//go:embed all:repo project.yaml service/Dockerfile
var files embed.FS

// Repository is the content of the sample repository.
func Repository() (fs.FS, error) { return fs.Sub(files, "repo") }

// Project is the project file.
func Project() ([]byte, error) { return files.ReadFile("project.yaml") }

// ServiceDockerfile builds ServiceImage; its BASE has to be Debian or Ubuntu with package sources that answer.
func ServiceDockerfile() ([]byte, error) { return files.ReadFile("service/Dockerfile") }
