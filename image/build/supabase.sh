. /tmp/build/lib.sh

if tarball @supabase/cli-linux-$arch /tmp/supabase; then
	chmod 755 /tmp/supabase/bin/*
	mv /tmp/supabase/bin/* /usr/local/bin/
	rm -rf /tmp/supabase
else
	missing supabase "the registry has no @supabase/cli-linux-$arch"
fi
