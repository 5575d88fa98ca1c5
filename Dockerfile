# syntax=docker/dockerfile:1
# The image of the operator and of the page: two static programs and the certificates of public authorities, nothing else.
#
#   docker build -t signoff-operator .
#
# `cargo xtask image` makes the same without a daemon, and is what the tests install; nobody has built this file yet.
#
# Static against musl, the C library of the compiler's image. TLS is aws-lc, which is C: its crate brings the bindings for
# musl along, and needs no more than a C compiler. musl's allocator is slower under many threads; the operator has two that
# work. The page is the same image with the command /signoff-web.

FROM rust:1.95-alpine AS build
# The compiler image's own C compiler lacks the headers; the certificates go into the image below.
RUN apk add --no-cache musl-dev gcc ca-certificates
WORKDIR /src
# All manifests of the workspace, because the lock file is that of all its members; what is built is two of them.
COPY Cargo.toml Cargo.lock ./
COPY operator operator
COPY tests tests
# The caches outlive a build, so the programs are copied out of the one they were made in.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package signoff-controller --bin signoff-operator --package signoff-web --bin signoff-web \
 && install -D -s -m 0555 target/release/signoff-operator /image/signoff-operator \
 && install -D -s -m 0555 target/release/signoff-web /image/signoff-web \
 && install -D -m 0444 /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ca-certificates.crt

FROM scratch
COPY --from=build /image /
# Nobody in particular, and the same number as in the chart. Nothing is ever written: the root may be read-only.
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["/signoff-operator"]
