#!/bin/sh
# Runs an MCP client against a server through a sidecar of its own:
#   through.sh SIDECAR CLIENT URL
# The sidecar runs the client as its child, so that calls without ids are counted,
# and tells it by COUNTERFOIL_URL where it listens.
set -eu
sidecar=$1 client=$2 url=$3
path=${url#*://*/}
[ "$path" != "$url" ] || path=""
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat > "$dir/counterfoil.yaml" <<END
upstreams:
  mcp:
    url: ${url%"/$path"}
    adapter: mcp
END
COUNTERFOIL_LOG_LEVEL=error COUNTERFOIL_CONFIG=$dir/counterfoil.yaml COUNTERFOIL_DATA=$dir/journal \
  "$sidecar" exec --run suite -- sh -c 'exec "$0" "$COUNTERFOIL_URL/mcp/$1"' "$client" "$path"
