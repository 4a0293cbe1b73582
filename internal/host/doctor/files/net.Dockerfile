FROM base
ARG URL
RUN wget -q -O /tmp/page "$URL" && grep -q x /tmp/page
