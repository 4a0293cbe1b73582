package netrules

// open lists the best-known domains (November 2026), with subdomains, where anyone can receive data that an agent sends.
// It cannot be complete.
var open = []struct {
	what    string
	domains []string
}{
	{"a paste site, which takes text from anyone", []string{
		"pastebin.com", "paste.ee", "hastebin.com", "dpaste.com", "dpaste.org", "termbin.com", "ix.io", "paste.rs", "rentry.co", "privatebin.net",
		"paste.debian.net",
	}},
	{"a file drop, which takes files from anyone", []string{
		"0x0.st", "transfer.sh", "file.io", "catbox.moe", "gofile.io", "tmpfiles.org", "bashupload.com", "wetransfer.com", "anonfiles.com",
		"mega.nz",
	}},
	{"a code host, where anyone has an account that a push, gist or issue can go to", []string{
		"github.com", "gist.github.com", "githubusercontent.com", "gitlab.com", "bitbucket.org", "codeberg.org", "huggingface.co",
	}},
	{"object storage, where anyone has a bucket", []string{
		"amazonaws.com", "storage.googleapis.com", "firebasestorage.googleapis.com", "firebaseio.com", "blob.core.windows.net",
		"r2.cloudflarestorage.com", "r2.dev",
		"digitaloceanspaces.com", "backblazeb2.com", "wasabisys.com", "supabase.co",
	}},
	{"a webhook catcher or tunnel, which shows requests to anyone", []string{
		"webhook.site", "requestbin.com", "requestcatcher.com", "pipedream.net", "beeceptor.com", "hookb.in", "interact.sh", "oast.fun",
		"oast.live", "oast.me", "oast.online",
		"oast.pro", "oast.site", "burpcollaborator.net", "oastify.com", "dnslog.cn", "ngrok.io", "ngrok.app", "ngrok-free.app",
		"trycloudflare.com", "loca.lt", "serveo.net",
	}},
	{"a chat or form service, where anyone has a channel", []string{
		"hooks.slack.com", "discord.com", "discordapp.com", "api.telegram.org", "docs.google.com", "forms.gle", "script.google.com",
	}},
	{"hosting, where anyone has a server under a name of their own", []string{
		"workers.dev", "pages.dev", "vercel.app", "netlify.app", "herokuapp.com", "onrender.com", "fly.dev", "azurewebsites.net",
		"cloudfunctions.net", "run.app",
	}},
	{"a registry, where anyone can publish with a token of their own", []string{
		"registry.npmjs.org", "upload.pypi.org", "test.pypi.org", "crates.io", "rubygems.org", "registry-1.docker.io", "ghcr.io", "quay.io",
	}},
}
