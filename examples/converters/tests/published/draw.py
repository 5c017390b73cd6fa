"""Draws the published files by lot and prints the table: one line a file.

Candidates are the workflow files of the packages in POOLS, as the registries' clients have unpacked them on this machine, by path alone: what is in a file
decides nothing. They are ordered by the SHA-256 of the seed and their name, and the first of each pool are taken.
"""

import hashlib
import pathlib
import re
import sys
import tarfile
import zipfile

SEED = "belay-converters-1"
# Format, registry, how many, and which paths.
POOLS = [
    ("github", "crates.io", 26, r"\.github/workflows/[^/]+\.ya?ml$"),
    ("github", "go", 8, r"\.github/workflows/[^/]+\.ya?ml$"),
    ("github", "pypi", 5, r"\.github/workflows/[^/]+\.ya?ml$"),
    ("github", "npm", 1, r"\.github/workflows/[^/]+\.ya?ml$"),
    ("argo", "go", 20, r"^examples/.*\.yaml$"),
    ("conductor", "go", 1, r"^README\.md$"),
]


def members(registry, archive):
    """The files of an archive: their path without the folder of the package, and their bytes."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                yield name.split("@", 1)[1].split("/", 1)[1], opened.read(name)
    else:
        with tarfile.open(archive) as opened:
            for member in opened:
                if member.isfile() and "/" in member.name:
                    yield member.name.split("/", 1)[1], opened.extractfile(member).read()


def main():
    # Lines of standard input: registry, package, version, archive.
    packages = [line.rstrip("\n").split("\t") for line in sys.stdin]
    for kind, registry, count, pattern in POOLS:
        drawn = []
        for place, package, version, archive in packages:
            wanted = place == registry and (kind == "github" or kind in package)
            if not wanted:
                continue
            for path, content in members(registry, pathlib.Path(archive)):
                if re.search(pattern, path):
                    lot = hashlib.sha256(f"{SEED} {package} {version} {path}".encode()).hexdigest()
                    drawn.append((lot, [kind, registry, package, version, path, hashlib.sha256(content).hexdigest(), ""]))
        for _, row in sorted(drawn)[:count]:
            print("\t".join(row))


main()
