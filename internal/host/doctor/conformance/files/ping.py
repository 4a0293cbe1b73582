"""Asks the Docker engine for its version, as a program in a container does that got the socket."""

import socket

s = socket.socket(socket.AF_UNIX)
s.connect("/var/run/docker.sock")
s.sendall(b"GET /version HTTP/1.0\r\n\r\n")
assert b'"ApiVersion"' in s.makefile("rb").read()
