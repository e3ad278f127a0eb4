# The service only; PostgreSQL and Redis run in separate containers (compose.yaml).
# Node 24.18.0. Each release names the newest digest: CONTRIBUTING.md has the command.
ARG NODE_IMAGE=node:24-bookworm-slim@sha256:6f7b03f7c2c8e2e784dcf9295400527b9b1270fd37b7e9a7285cf83b6951452d
FROM ${NODE_IMAGE} AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --include=dev --include=optional --ignore-scripts
COPY . .
# The packages of the clients, if `make clients` has built them, are in `packages`.
RUN mkdir -p packages && npm run build && npm prune --omit=dev --omit=optional --ignore-scripts

FROM ${NODE_IMAGE}
ENV NODE_ENV=production
# Other machines can reach the service, so whoever runs the container must set AUTH.
ENV HOST=0.0.0.0
# docs/operations.md ("Sizing") says what this heap is enough for.
ENV NODE_OPTIONS=--max-old-space-size=256
WORKDIR /app
COPY --from=build /app/node_modules node_modules
COPY --from=build /app/dist dist
COPY --from=build /app/demo demo
COPY --from=build /app/packages packages
COPY package.json ./
COPY openapi openapi
COPY drizzle drizzle
COPY browser browser
COPY docs docs
COPY clients clients
# Readable for the user below, whatever the umask of the checkout was.
RUN chmod -R go+rX package.json openapi drizzle browser docs clients packages
# The commit: --build-arg REVISION=$(git rev-parse HEAD)
ARG REVISION=unknown
LABEL org.opencontainers.image.title="branded-phone-numbers" \
  org.opencontainers.image.description="Lists phone numbers submitted for branding and spam remediation with carriers" \
  org.opencontainers.image.version="1.6.1" \
  org.opencontainers.image.revision="${REVISION}" \
  org.opencontainers.image.licenses="MIT"
# The user `node`, by number: Kubernetes can't verify from a name that a user is not root.
USER 1000:1000
EXPOSE 3000
# Not /readyz: an outage of PostgreSQL must not restart every container.
HEALTHCHECK --interval=10s --timeout=2s --start-period=30s \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT || 3000}/healthz`).then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
# No shell in between, so that SIGTERM reaches the service.
ENTRYPOINT ["node", "dist/src/main.js"]
CMD ["serve"]
