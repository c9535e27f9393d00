FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
# .ci/run takes this line as it stands, so keep it one line.
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags="-s -w -X main.version=${VERSION}" -o bin/sidecar ./cmd/sidecar
RUN mkdir /empty

# The binary, the certificates that it trusts, and a user without rights; no shell.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/bin/sidecar /sidecar
# A new volume takes its owner from here.
COPY --from=build --chown=65532:65532 /empty /data
USER 65532:65532
# The journal outlives the container only in a volume.
VOLUME /data
# A container's loopback reaches nobody else. Set COUNTERFOIL_TOKENS: see docs/configuration.md.
ENV COUNTERFOIL_DATA=/data COUNTERFOIL_LISTEN=0.0.0.0:8100
EXPOSE 8100
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["/sidecar", "health"]
ENTRYPOINT ["/sidecar"]
