"""The three commands of Redis that the counter needs, over a plain socket."""

import socket


class Redis:
    def __init__(self, host, port=6379):
        self._sock = socket.create_connection((host, port), timeout=5)
        self._in = self._sock.makefile("rb")

    def close(self):
        self._in.close()
        self._sock.close()

    def _call(self, *args):
        parts = [str(a).encode() for a in args]
        out = b"*%d\r\n" % len(parts)
        for p in parts:
            out += b"$%d\r\n%s\r\n" % (len(p), p)
        self._sock.sendall(out)
        line = self._in.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if rest == b"-1":
                return None
            return self._in.read(int(rest) + 2)[:-2].decode()
        return rest.decode()

    def incr(self, key):
        return self._call("INCR", key)

    def get(self, key):
        return self._call("GET", key)

    def delete(self, key):
        return self._call("DEL", key)
