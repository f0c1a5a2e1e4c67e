# The image of any stack. `harness build STACK` stages the build context (this file, pins.json,
# labels.json and the project's folders), passes the base image and lints this file first.
#
# Layers, from the one that changes least to the one that changes most:
#   base -> uv -> the stack's lock -> the controller's lock -> harness -> recipes
# so that an edited recipe rebuilds no layer that installs something.
#
# BASE_IMAGE carries its digest (`name:tag@sha256:...`): a tag can move, a digest cannot.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}

# The base's own choice of user is kept for what it installs; the image itself runs as 1000 (below).
USER 0:0

# The steps are plain Python and sh without dependencies: the base brings no more than a Python.
COPY harness/image/inside /opt/harness/steps/harness/image/inside
COPY lockfiles/controller/requirements.lock /opt/harness/locks/controller.lock
COPY lockfiles/testing/requirements.lock /opt/harness/locks/testing.lock
# Index and certificates of the building machine are secrets of the step: no layer keeps them.
RUN --mount=type=secret,id=ca --mount=type=secret,id=index \
    sh /opt/harness/steps/harness/image/inside/step.sh tools

ARG STACK
COPY pins.json /opt/harness/pins.json
COPY lockfiles/${STACK}/requirements.lock /opt/harness/locks/stack.lock
COPY sources /opt/harness/sources
RUN --mount=type=secret,id=ca --mount=type=secret,id=index \
    --mount=type=cache,id=trn-harness-uv,target=/var/cache/uv,sharing=locked \
    sh /opt/harness/steps/harness/image/inside/step.sh stack

# A layer of its own: the controller's tools change more often than the stack.
# hadolint ignore=DL3059
RUN --mount=type=secret,id=ca --mount=type=secret,id=index \
    --mount=type=cache,id=trn-harness-uv,target=/var/cache/uv,sharing=locked \
    sh /opt/harness/steps/harness/image/inside/step.sh controller

COPY pyproject.toml compose.yaml /project/
COPY harness /project/harness
COPY lockfiles /project/lockfiles
COPY tests /project/tests
RUN sh /opt/harness/steps/harness/image/inside/step.sh harness

COPY recipes /project/recipes
COPY labels.json /opt/harness/labels.json

ENV PATH=/opt/harness/bin:/opt/stack/bin:${PATH} \
    HARNESS_CACHE=/cache \
    HOME=/tmp \
    USER=harness \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /project
USER 1000:1000
# Bases for serving carry a check of a web port that nobody listens on here.
HEALTHCHECK NONE
ENTRYPOINT ["/opt/harness/bin/entrypoint"]
CMD ["list"]
