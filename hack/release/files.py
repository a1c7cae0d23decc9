"""Files that depend on their content alone: not on the time, the user, the umask or the order of a folder."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path


def sha256(data):
    """The digest of bytes or of a file, in hexadecimal."""
    digest = hashlib.sha256()
    if isinstance(data, Path):
        with data.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    else:
        digest.update(data)
    return digest.hexdigest()


def json_bytes(value):
    """JSON with sorted keys."""
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False).encode() + b"\n"


def compressed(data):
    """gzip without a name and a time."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=6, mtime=0) as stream:
        stream.write(data)
    return buffer.getvalue()


class Tar:
    """A tar archive whose entries belong to root and have one time. Folders above an entry come before it."""

    def __init__(self, time):
        self._time = time
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w", format=tarfile.USTAR_FORMAT)
        self._folders = set()

    def _add(self, name, kind, mode, data=b"", target=""):
        for folder in reversed(Path(name).parents[:-1]):
            if str(folder) not in self._folders:
                self._folders.add(str(folder))
                self._add(str(folder), tarfile.DIRTYPE, 0o755)
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.mtime, entry.linkname, entry.size = kind, mode, self._time, target, len(data)
        self._tar.addfile(entry, io.BytesIO(data))

    def file(self, name, data, mode=0o644):
        self._add(name, tarfile.REGTYPE, mode, data)

    def link(self, name, target):
        self._add(name, tarfile.SYMTYPE, 0o777, target=target)

    def bytes(self):
        self._tar.close()
        return self._buffer.getvalue()
