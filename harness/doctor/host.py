"""What there is on a machine, as values: the checks judge these and read nothing themselves."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "CacheEntry",
    "Device",
    "Disk",
    "Distribution",
    "Holder",
    "Host",
    "Index",
    "NeuronLs",
    "NeuronLsDevice",
    "Torch",
]


@dataclass(frozen=True, slots=True)
class Distribution:
    """An installed Python distribution, from its metadata; nothing of it was imported."""

    name: str
    """Normalised: lower case, dashes."""
    version: str
    """Full, with its local label."""
    requires: tuple[str, ...] = ()
    """`Requires-Dist` lines that no extra guards."""
    modules: tuple[str, ...] | None = None
    """Top-level modules that can be imported, from RECORD; None where RECORD was not read."""
    text: str = ""
    """Summary and the first lines of the description."""


@dataclass(frozen=True, slots=True)
class Torch:
    """The installed torch as its own files describe it."""

    version: str
    """`torch.__version__`, read from `torch/version.py`, with the label that metadata can lack."""
    as_recorded: bool | None
    """Whether `torch/version.py` still has the SHA-256 that RECORD gives it; None if RECORD has none."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device node `/dev/neuron<index>`. `access` says who may open it, as `mode uid:gid`."""

    index: int
    usable: bool
    """Whether this user may read and write it."""
    access: str = ""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds device nodes open. `age` in seconds, None if it could not be read."""

    pid: int
    command: str
    age: float | None
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Disk:
    """Space of the file system at `path`, in bytes."""

    path: str
    free: int
    total: int


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A module in the persistent compile cache.

    `compiler` is the full version in the folder's name; `state` is `done`, `failed` (a log and no result)
    or `unfinished`; `changed` is the time of the log's last change, seconds since 1970.
    """

    compiler: str
    module: str
    state: str
    changed: float = 0.0
    path: str = ""


@dataclass(frozen=True, slots=True)
class Index:
    """One package index of the effective configuration of an installer."""

    tool: str
    """`pip` or `uv`."""
    role: str
    """`default` (replaces the public index) or `extra`."""
    url: str
    source: str
    """The file or variable it stands in."""


@dataclass(frozen=True, slots=True)
class NeuronLsDevice:
    """One device of `neuron-ls`. `cores` counts logical cores where `lnc` is known."""

    index: int
    cores: int
    lnc: int | None
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True)
class NeuronLs:
    """What `neuron-ls` printed; `problem` says why it could not be understood."""

    devices: tuple[NeuronLsDevice, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine, or the inside of a container, at one moment."""

    container: bool = False
    uid: int = 0
    now: float = 0.0
    """Seconds since 1970."""
    variables: Mapping[str, str] = field(default_factory=dict)
    environment: str | None = None
    """Folder of the Python environment that was read; None if there is none."""
    python: str | None = None
    """Version of that environment's Python (of the controller's where there is no environment)."""
    distributions: tuple[Distribution, ...] = ()
    torch: Torch | None = None
    os_packages: Mapping[str, str] = field(default_factory=dict)
    """Installed Debian packages and versions; empty without a dpkg status file."""
    indexes: tuple[Index, ...] = ()
    index_problems: tuple[str, ...] = ()
    driver: str | None = None
    """Version of the loaded `neuron` kernel module; None if it is not loaded."""
    driver_devices: int | None = None
    """Devices that the driver lists in sysfs: a container sees the host's, passed or not."""
    cores_per_device: int | None = None
    """Physical cores per device, from sysfs; None if the driver's sysfs tree has no such file."""
    devices: tuple[Device, ...] = ()
    holders: tuple[Holder, ...] = ()
    neuron_ls: NeuronLs | None = None
    shm: Disk | None = None
    disks: Mapping[str, Disk] = field(default_factory=dict)
    """What is kept there (`cache`, `runs`, `image`) -> space."""
    compile_cache: str = ""
    """Where the compiler caches; may be a remote address."""
    cache_entries: tuple[CacheEntry, ...] = ()

    def installed(self) -> dict[str, Distribution]:
        """Return the distributions by name; of two with one name, the one listed last."""
        return {item.name: item for item in self.distributions}
