. /tmp/build/lib.sh

if tarball @anthropic-ai/claude-code-linux-$arch /tmp/claude; then
	mv /tmp/claude/claude /usr/local/bin/claude
	chmod 755 /usr/local/bin/claude
	rm -rf /tmp/claude
else
	missing claude-code "the registry has no @anthropic-ai/claude-code-linux-$arch"
fi
