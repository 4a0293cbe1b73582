package surface

import (
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
)

// sign is a pattern of commands that a review should stop at, wherever they stand.
type sign struct {
	what string
	re   *pattern.Pattern
	weak bool // common in ordinary scripts
	// hints: without one of these the pattern cannot fit. Go's patterns are slow, and most lines have none.
	hints []string
}

// signs find common ways of fetching and running, hiding, and carrying away. They mark a finding as grave and
// say why; that a file is reported at all does not depend on them, save for ordinary scripts.
var signs = []sign{
	{"runs what it downloads", pattern.New(`(?i)\b(curl|wget|fetch|iwr|irm|invoke-webrequest|invoke-restmethod)\b[^|;&]*\|\s*(\S*/)?(sudo\s+)?(env\s+)?(\S*/)?(ba|z|da|k|fi)?sh\b`), false, strings.Fields("curl wget fetch iwr irm invoke-")},
	{"runs what it downloads", pattern.New(`(?i)\b(curl|wget)\b.*\|\s*(sudo\s+)?(python[0-9.]*|node|perl|ruby|php|deno|bun)\b`), false, strings.Fields("curl wget fetch iwr irm invoke-")},
	{"runs what it downloads", pattern.New(`(?i)\b(ba|z)?sh\b\s+(-c\s+)?["']?(<\(|\$\()\s*(curl|wget)`), false, strings.Fields("curl wget fetch iwr irm invoke-")},
	{"runs what it downloads", pattern.New(`(?i)\b(iex|invoke-expression)\b|downloadstring\(`), false, strings.Fields("iex invoke-expression downloadstring")},
	{"runs what it downloads", pattern.New(`(?i)\b(curl|wget)\b.*(&&|;)\s*(sudo\s+)?(chmod\s+\S*x|chmod\s+[0-7]*[1357]|(ba)?sh\s+\S)`), false, strings.Fields("curl wget fetch iwr irm invoke-")},
	{"runs what it decodes", pattern.New(`(?i)base64\s+(-d|--decode|-D)\b.*\|\s*(\S*/)?(ba|z)?sh|\|\s*(xxd\s+-r|openssl\s+enc\s+-d)\b.*\|`), false, strings.Fields("base64 xxd openssl")},
	{"runs what it decodes", pattern.New(`(?i)\b(eval|exec|function)\s*\(\s*(atob|buffer\.from|base64|codecs|zlib|marshal|bytes\.fromhex|__import__)`), false, strings.Fields("eval exec function")},
	{"runs what it decodes", pattern.New(`(?i)\beval\s+["'` + "`" + `]?\$\(|\beval\s+"?\$\{?\w+.*base64`), false, strings.Fields("eval")},
	{"hidden command", pattern.New(`(?i)powershell(\.exe)?\s.*-e(nc(odedcommand)?)?\s+[a-z0-9+/=]{16,}`), false, strings.Fields("powershell")},
	{"opens a shell to the network", pattern.New(`/dev/(tcp|udp)/|\bn(c|cat)\b.*\s-[a-z]*[ec]\s|\bsocat\b.*exec|bash\s+-i\s`), false, strings.Fields("/dev/ nc ncat socat bash")},
	{"reads credentials", pattern.New(`(?i)(~|\$\{?home\}?|/root|/home/\w+|%userprofile%)["']?[/\\]\.?(ssh|aws|gnupg|kube|netrc|npmrc|docker|config/gcloud|config/gh|pypirc|git-credentials)\b|\bid_(rsa|ed25519|ecdsa)\b|/etc/shadow|169\.254\.169\.254|metadata\.google\.internal`), false, strings.Fields("ssh aws gnupg kube netrc npmrc docker gcloud config/gh pypirc git-cred id_ shadow 169.254 metadata")},
	{"sends the environment away", pattern.New(`(?i)\b(printenv|env|set)\b\s*\|.*\b(curl|wget|nc|base64)\b|(curl|wget)\b[^|;&)]*(\$\(\s*(env|printenv|cat)\b|--data(-binary|-urlencode|-raw)?[= ]@?|-d\s*@|-F\s|--upload-file|-T\s|--post-(data|file))`), false, strings.Fields("curl wget nc base64")},
	{"sends data away", pattern.New(`(?i)(webhook\.site|requestbin|pipedream\.net|ngrok|burpcollaborator|interact\.sh|\.oast\.|oastify|transfer\.sh|pastebin\.com|discord(app)?\.com/api/webhooks|api\.telegram\.org|dnslog|file\.io|0x0\.st|termbin)`), false, strings.Fields("webhook requestbin pipedream ngrok burp interact oast transfer pastebin discord telegram dnslog file.io 0x0 termbin")},
	{"names an address by number", pattern.New(`https?://([0-9]{1,3}\.){3}[0-9]{1,3}`), true, strings.Fields("http")},
	{"changes what runs later", pattern.New(`(?i)\bcrontab\b|authorized_keys|core\.hookspath|\bLD_PRELOAD\b|DYLD_INSERT_LIBRARIES|>>?\s*(~|\$HOME)/\.(bash|zsh|profile)|/etc/(cron|profile|sudoers|rc\.local)|systemctl\s+(--user\s+)?enable|NODE_OPTIONS|GIT_SSH_COMMAND|PYTHONSTARTUP`), true, strings.Fields("crontab authorized core.hooks ld_preload dyld ~/. $home /etc/ systemctl node_options git_ssh pythonstartup")},
	{"controls the Docker engine", pattern.New(`docker\.sock\b|--privileged\b|--pid[= ]host|\bnsenter\b|--cap-add[= ](ALL|SYS_ADMIN)`), true, strings.Fields("docker.sock privileged --pid nsenter cap-add")},
	{"turns a check off", pattern.New(`(?i)strict-ssl["']?\s*[=:]\s*["']?false|NODE_TLS_REJECT_UNAUTHORIZED|GIT_SSL_NO_VERIFY|sslverify\s*=?\s*["']?false|GONOSUMDB|GONOSUMCHECK|GOINSECURE|GOFLAGS=.*-insecure|\bGOSUMDB=off|trusted-host|--no-verify\b|PYTHONHTTPSVERIFY|StrictHostKeyChecking[= ]no|curl\b.*\s(-k|--insecure)\b`), true, strings.Fields("ssl tls insecure nosum sumdb goflags trusted-host no-verify pythonhttps stricthost curl")},
	{"runs code from its arguments", pattern.New(`(?i)\b(python[0-9.]*\s+-c|node\s+(-e|--eval|-p)|perl\s+-e|ruby\s+-e|php\s+-r|deno\s+eval)\b.*(http|socket|child_process|subprocess|os\.system|base64|exec|urllib|require)`), true, strings.Fields("python node perl ruby php deno")},
	{"starts programs", pattern.New(`(?i)(child_process|subprocess|os\.system|popen|execsync|spawnsync|runtime\.getruntime\(\)\.exec|std::process::command|processbuilder).*(curl|wget|bash|powershell|/bin/sh|http)`), false, strings.Fields("child_process subprocess os.system popen execsync spawnsync runtime std::process processbuilder")},
}

// ownNetwork are addresses by number that lead nowhere far: loopback, private networks, those of documentation.
var ownNetwork = pattern.New(`https?://(127\.|0\.0\.0\.0|10\.|192\.168\.|172\.(1[6-9]|2[0-9]|3[01])\.|192\.0\.2\.|198\.51\.100\.|203\.0\.113\.|[01]\.)[0-9.]*`)

// unquoted: a word in quotes in its middle is the same word for a shell: cu”rl.
var unquoted = strings.NewReplacer(`''`, "", `""`, "", "\\\n", " ")

// suspicious says what is odd about a command, or "".
func suspicious(s string) string { return oddity(s, true) }

func oddity(s string, weak bool) string {
	if len(s) > maxCommand {
		s = s[:maxCommand]
	}
	plain := unquoted.Replace(s)
	plain = ownNetwork.ReplaceAllString(plain, "")
	low := strings.ToLower(plain)
	for _, g := range signs {
		if (weak || !g.weak) && slices.ContainsFunc(g.hints, func(h string) bool { return strings.Contains(low, h) }) && g.re.MatchString(plain) {
			return g.what
		}
	}
	return ""
}
