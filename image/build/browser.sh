# Installs Chromium and ffmpeg. Ubuntu's chromium package only installs a snap. On
# Ubuntu, packages.sh downloads Playwright's build, and this script installs its libraries.
. /tmp/build/lib.sh

fonts="fonts-liberation fonts-dejavu-core fonts-noto-color-emoji"
case $ID in
debian)
	# shellcheck disable=SC2086 # a list of packages
	install chromium ffmpeg $fonts
	;;
ubuntu)
	# shellcheck disable=SC2086 # a list of packages
	install ffmpeg $fonts libasound2t64 libatk-bridge2.0-0t64 libatk1.0-0t64 libatspi2.0-0t64 libcairo2 libcups2t64 \
		libdbus-1-3 libdrm2 libgbm1 libglib2.0-0t64 libnspr4 libnss3 libpango-1.0-0 libx11-6 libxcb1 \
		libxcomposite1 libxdamage1 libxext6 libxfixes3 libxkbcommon0 libxrandr2
	;;
esac
