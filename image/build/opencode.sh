. /tmp/build/lib.sh

if tarball opencode-linux-$arch /tmp/opencode; then
	mv /tmp/opencode/bin/opencode /usr/local/bin/opencode
	chmod 755 /usr/local/bin/opencode
	rm -rf /tmp/opencode
else
	missing opencode "the registry has no opencode-linux-$arch"
fi
