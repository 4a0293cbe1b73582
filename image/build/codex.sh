. /tmp/build/lib.sh

if tarball @openai/codex-linux-$arch /tmp/codex; then
	# Codex expects its helper programs in its own directory; its voice input is not needed.
	mv /tmp/codex/vendor/*-linux-* /usr/local/lib/codex # its only directory
	rm -rf /usr/local/lib/codex/codex-resources/voice /tmp/codex
	chmod -R a+rX /usr/local/lib/codex
	ln -s ../lib/codex/bin/codex /usr/local/bin/codex
else
	missing codex "the registry has no @openai/codex for linux-$arch"
fi
